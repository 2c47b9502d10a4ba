# Notebooks by papermill: they draw the figures and explain them. Drawing never reruns a measurement.
from tare.core.answers import Answers
from snakemake.io import report as shown  # at the start of a line `report` is a keyword

VARIED = {
    one: arms.parse(one.arm)
    for one in campaigns.campaigns(STUDIED)
    if one.arm and one.scenario == SINGLE
}
# Of all workloads, where steps are measured at more than one level of the allocator: levels of an arm as any.
LEVELLED = (
    WORKLOADS if STUDIED.rounds.steps and len(STUDIED.rounds.steps.levels) > 1 else []
)
# Workloads of which anything was varied that the host can be weighed by.
CHOICE_WORKLOADS = sorted({*LEVELLED, *(one.workload for one in VARIED)})
# What the device did, if it is not the CPU; whether there is one is found where it is measured, and the figures say it.
DEVICE_WORKLOADS = WORKLOADS if config["device"] != "cpu" else []


def figures(name, category, title, workloads, caption=None):
    """Figures `<results>/figures/<name>_<workload>.svg`; for the workload `all` without its name."""
    return [
        shown(
            f"<results>/figures/{name}{'' if workload == 'all' else f'_{workload}'}.svg",
            caption=f"captions/{caption or name}.rst",
            category=category,
            subcategory=workload,
            labels={"workload": workload, "figure": title},
        )
        for workload in workloads
    ]


def drawn_of(paper):
    """Number, title and subjects of each figure that is drawn of a paper; its file is checked once per content."""
    path = papers.folder() / f"{paper}.yaml"

    def read():
        from tare.literature.published_file import (
            read_paper,
        )  # takes longer than all else here

        plots = read_paper(path).plotted
        return [
            [int(one.figure), one.title, one.subjects]
            for one in plots
            if one.table is None
        ]

    checker = project_root() / "tare/literature/published_file.py"
    known = Answers("plots", sha256_file(checker))
    found = known(f"{paper} {sha256_file(path)}", read)
    known.save()
    return found


# By notebook: title, the tables and other files that it reads, its figures.
NOTEBOOKS = {
    "job_length": (
        "job length",
        ["job_length"],
        [],
        figures(
            "job_length", "Environments", "what a job costs, by its length", WORKLOADS
        ),
    ),
    "environments": (
        "environments",
        ["metrics", "verdicts"],
        [],
        [
            *figures("split", "Environments", "where the time goes", ["all"]),
            *figures(
                "intervals", "Environments", "ratio to the host", WORKLOADS + OWN_JOBS
            ),
            *figures("units", "Environments", "every launch", WORKLOADS + OWN_JOBS),
        ],
    ),
    "profile": (
        "a profiled launch",
        ["operators", "samples", "steps"],
        [],
        figures(
            "utilisation", "Environments", "CPU and memory over a launch", WORKLOADS
        )
        + figures("operators", "Environments", "operators by own time", WORKLOADS),
    ),
    "why": (
        "why",
        ["metrics", "kernels"],
        [],
        [],
    ),
}
if not WORKLOADS:  # commands alone
    NOTEBOOKS = {"environments": NOTEBOOKS["environments"]}
if ROOFS:
    NOTEBOOKS["roofline"] = (
        "roofline",
        ["metrics", "families"],
        ROOFS,
        figures("roofline", "Roofline", "roofline", ["all"])
        + figures(
            "roofline",
            "Roofline",
            "roofline by operator",
            WORKLOADS,
            caption="roofline_families",
        ),
    )
for paper in PAPERS:
    NOTEBOOKS[paper] = (
        paper,
        [
            "metrics",
            "verdicts",
            "samples",
            "device_samples",
            "steps",
            "published",
            "claims",
        ],
        [*PAPER_FILES, *ROOFS],
        [
            shown(
                f"<results>/figures/{paper}_fig{number:02d}.svg",
                caption="captions/paper.rst",
                category=paper,
                labels={
                    "workload": ", ".join(subjects),
                    "figure": f"{number}: {title}",
                },
            )
            for number, title, subjects in drawn_of(paper)
        ],
    )
if SWEPT:
    NOTEBOOKS["batch_size"] = (
        "batch size",
        ["metrics"],
        [],
        figures("batch_size", "Batch size", "real time by batch size", SWEPT),
    )
if CHOICE_WORKLOADS:
    NOTEBOOKS["choices"] = (
        "environment or settings",
        ["metrics", "verdicts"],
        [],
        figures("choices", "Environments", "environment or settings", CHOICE_WORKLOADS),
    )
if DEVICE_WORKLOADS:
    NOTEBOOKS["device"] = (
        "device",
        ["metrics", "device_samples", "steps"],
        [],
        figures(
            "device_time", "Device", "the device's time in a step", DEVICE_WORKLOADS
        )
        + figures(
            "device_samples", "Device", "the device over a launch", DEVICE_WORKLOADS
        ),
    )


def figure_options(wildcards, output):
    """What each notebook draws: where one fails, the page is drawn from the others, and says so."""
    own = iter(output.figures)
    words = [
        ["--figures", name, *(str(next(own)) for _ in drawn)]
        for name, (_, _, _, drawn) in NOTEBOOKS.items()
    ]
    return shlex.join(word for each in words for word in each)


rule draw_notebooks:
    # One command: what all of them import takes longer than most of them draw.
    input:
        notebooks=sorted(
            {
                checkout_file(f"notebooks/{'paper' if name in PAPERS else name}.ipynb")
                for name in NOTEBOOKS
            }
        ),
        tables=sorted(
            {
                f"<results>/tables/{table}.csv"
                for _, tables, _, _ in NOTEBOOKS.values()
                for table in tables
            }
        ),
        files=sorted({file for _, _, files, _ in NOTEBOOKS.values() for file in files}),
    output:
        notebooks=[f"<results>/notebooks/{name}.ipynb" for name in NOTEBOOKS],
        pages=[
            shown(
                f"<results>/notebooks/{name}.html",
                caption="captions/notebook.rst",
                category="Notebooks",
                labels={"notebook": title},
            )
            for name, (title, _, _, _) in NOTEBOOKS.items()
        ],
        figures=[figure for _, _, _, drawn in NOTEBOOKS.values() for figure in drawn],
        failed="<results>/notebooks/failed.json",
    log:
        "<logs>/notebooks.log",
    localrule: True
    threads: CORES
    params:
        names=list(NOTEBOOKS),
        figures=figure_options,
        code=DRAWING,
        results=lambda wildcards, output: str(Path(output.notebooks[0]).parents[1]),
        workloads=WORKLOADS,
    message:
        "draw the figures, by notebooks" + ON_MACHINE
    shell:
        ON
        + "python -m tare notebook {params.names:q} --results {params.results:q} --workloads {params.workloads:q}"
        " --jobs {threads} {params.figures} --out {params.results:q}/notebooks 2> {log:q}"
