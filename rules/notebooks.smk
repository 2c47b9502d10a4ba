# Notebooks by papermill: they draw the figures and explain them. Drawing never reruns a measurement.
FIGURE_CODE = sorted(str(path) for path in Path("tare/figures").glob("*.py")) + [
    "tare/labels.py"
]
ENVIRONMENT_FIGURES = {
    "split": "where the time goes",
    "intervals": "ratio to the host",
    "units": "every launch",
    "utilisation": "CPU and memory over a launch",
    "operators": "operators by own time",
}
# Workloads whose settings are varied; each has one figure of all its arms.
ARM_WORKLOADS = (
    config["arms"]["workloads"]
    if config["arms"]["rounds"] or config["arms"]["turns"]
    else []
)


rule draw_batch_size:
    input:
        notebook="notebooks/batch_size.ipynb",
        metrics="<results>/tables/metrics.parquet",
        code=FIGURE_CODE,
    output:
        notebook="<results>/notebooks/batch_size.ipynb",
        page=report(
            "<results>/notebooks/batch_size.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "batch size"},
        ),
        figures=[
            report(
                f"<results>/figures/batch_size_{workload}.svg",
                caption="captions/batch_size.rst",
                category="Batch size",
                labels={"workload": workload, "figure": "real time by batch size"},
            )
            for workload in WORKLOADS
        ],
    log:
        "<results>/logs/notebooks/batch_size.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw real time by batch size"
    shell:
        "python -m tare notebook batch_size --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_environments:
    input:
        notebook="notebooks/environments.ipynb",
        metrics="<results>/tables/metrics.csv",
        verdicts="<results>/tables/verdicts.csv",
        operators="<results>/tables/operators.csv",
        samples="<results>/tables/samples.csv",
        code=FIGURE_CODE,
    output:
        notebook="<results>/notebooks/environments.ipynb",
        page=report(
            "<results>/notebooks/environments.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "environments"},
        ),
        figures=[
            report(
                f"<results>/figures/{figure}_{workload}.svg",
                caption=f"captions/{figure}.rst",
                category="Environments",
                subcategory=workload,
                labels={"workload": workload, "figure": title},
            )
            for workload in WORKLOADS
            for figure, title in ENVIRONMENT_FIGURES.items()
        ],
        arms=[
            report(
                f"<results>/figures/arms_{workload}.svg",
                caption="captions/arms.rst",
                category="Environments",
                subcategory=workload,
                labels={"workload": workload, "figure": "arms"},
            )
            for workload in ARM_WORKLOADS
        ],
    log:
        "<results>/logs/notebooks/environments.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw the environments beside the host"
    shell:
        "python -m tare notebook environments --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_roofline:
    input:
        notebook="notebooks/roofline.ipynb",
        metrics="<results>/tables/metrics.parquet",
        ceilings="<results>/ceilings.json",
        code=FIGURE_CODE,
    output:
        notebook="<results>/notebooks/roofline.ipynb",
        page=report(
            "<results>/notebooks/roofline.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "roofline"},
        ),
        figure=report(
            "<results>/figures/roofline.svg",
            caption="captions/roofline.rst",
            category="Roofline",
            labels={"workload": "all", "figure": "roofline"},
        ),
    log:
        "<results>/logs/notebooks/roofline.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw the roofline of this machine"
    shell:
        "python -m tare notebook roofline --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"
