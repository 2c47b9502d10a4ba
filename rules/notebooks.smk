# Notebooks by papermill: they draw the figures and explain them. Drawing never reruns a measurement.
FIGURE_CODE = sorted(str(path) for path in Path("tare/report/figures").glob("*.py")) + [
    "tare/report/labels.py"
]
ENVIRONMENT_FIGURES = {
    "split": "where the time goes",
    "intervals": "ratio to the host",
    "units": "every launch",
    "utilisation": "CPU and memory over a launch",
    "operators": "operators by own time",
}
# Figures of the study that this project repeats: workload and what they show.
PAPER_FIGURES = {
    2: ("mnist_cnn", "real time by batch size"),
    3: ("sentiment_rnn", "real time by batch size"),
    4: ("all", "roofline"),
    5: ("mnist_cnn", "memset"),
    6: ("sentiment_rnn", "memset"),
    7: ("mnist_cnn", "host to device"),
    8: ("sentiment_rnn", "host to device"),
    9: ("mnist_cnn", "DRAM read throughput"),
    10: ("sentiment_rnn", "DRAM read throughput"),
    11: ("mnist_cnn", "DRAM write throughput"),
    12: ("sentiment_rnn", "DRAM write throughput"),
    13: ("mnist_cnn", "FLOPs"),
    14: ("sentiment_rnn", "FLOPs"),
    15: ("mnist_cnn", "HBM transactions"),
    16: ("sentiment_rnn", "HBM transactions"),
    17: ("mnist_cnn", "real and system time"),
    18: ("sentiment_rnn", "real and system time"),
}
# Workloads that have an arm in every environment; each has one figure of all its arms.
ARM_NAMES = [*config["arms"]["rounds"], *config["arms"]["turns"]]
ARM_WORKLOADS = (
    config["arms"]["workloads"]
    if any(not arms.parse(text).is_setting for text in ARM_NAMES)
    else []
)

STACK_WORKLOADS = WORKLOADS if config["stacks"] else []
# Workloads of which anything was varied that the host can be weighed by.
CHOICE_WORKLOADS = [
    workload
    for workload in WORKLOADS
    if workload in STACK_WORKLOADS
    or ARM_NAMES
    and workload in config["arms"]["workloads"]
]
# What a device of its own did: only where there is one.
DEVICE_FIGURES = {
    "device_time": "the device's time in a step",
    "device_samples": "the device over a launch",
}
DEVICE_WORKLOADS = WORKLOADS if config["device"] == "cuda" else []


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
        stacks=[
            report(
                f"<results>/figures/stacks_{workload}.svg",
                caption="captions/stacks.rst",
                category="Environments",
                subcategory=workload,
                labels={"workload": workload, "figure": "stacks"},
            )
            for workload in STACK_WORKLOADS
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


rule draw_choices:
    input:
        notebook="notebooks/choices.ipynb",
        metrics="<results>/tables/metrics.csv",
        verdicts="<results>/tables/verdicts.csv",
        code=FIGURE_CODE,
    output:
        notebook="<results>/notebooks/choices.ipynb",
        page=report(
            "<results>/notebooks/choices.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "environment or settings"},
        ),
        figures=[
            report(
                f"<results>/figures/choices_{workload}.svg",
                caption="captions/choices.rst",
                category="Environments",
                subcategory=workload,
                labels={"workload": workload, "figure": "environment or settings"},
            )
            for workload in CHOICE_WORKLOADS
        ],
    log:
        "<results>/logs/notebooks/choices.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw environments and settings on one axis"
    shell:
        "python -m tare notebook choices --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_device:
    input:
        notebook="notebooks/device.ipynb",
        metrics="<results>/tables/metrics.csv",
        samples="<results>/tables/device_samples.csv",
        code=[*FIGURE_CODE, "tare/machine/nvml.py"],
    output:
        notebook="<results>/notebooks/device.ipynb",
        page=report(
            "<results>/notebooks/device.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "device"},
        ),
        figures=[
            report(
                f"<results>/figures/{figure}_{workload}.svg",
                caption=f"captions/{figure}.rst",
                category="Device",
                subcategory=workload,
                labels={"workload": workload, "figure": title},
            )
            for workload in WORKLOADS
            for figure, title in DEVICE_FIGURES.items()
        ],
    log:
        "<results>/logs/notebooks/device.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw what the device did"
    shell:
        "python -m tare notebook device --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_reference:
    input:
        notebook="notebooks/reference.ipynb",
        records=collect("results/reference/{name}/reference.json", name=REFERENCES),
        tables=collect("results/reference-tables/{name}/metrics.csv", name=REFERENCES),
        code=[*FIGURE_CODE, "tare/report/references.py"],
    output:
        notebook="<results>/notebooks/reference.ipynb",
        page=report(
            "<results>/notebooks/reference.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "reference machines"},
        ),
        figures=directory("<results>/figures/reference"),
    log:
        "<results>/logs/notebooks/reference.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw the reference machines"
    shell:
        "python -m tare notebook reference --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_why:
    input:
        notebook="notebooks/why.ipynb",
        metrics="<results>/tables/metrics.parquet",
        verdicts="<results>/tables/verdicts.csv",
        kernels="<results>/tables/kernels.csv",
        code=[*FIGURE_CODE, "tare/analysis/causes.py"],
    output:
        notebook="<results>/notebooks/why.ipynb",
        page=report(
            "<results>/notebooks/why.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "why"},
        ),
        figures=[
            report(
                f"<results>/figures/why_{workload}.svg",
                caption="captions/why.rst",
                category="Environments",
                subcategory=workload,
                labels={"workload": workload, "figure": "where extra time sits"},
            )
            for workload in WORKLOADS
        ],
    log:
        "<results>/logs/notebooks/why.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw where extra time sits"
    shell:
        "python -m tare notebook why --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_prices:
    input:
        notebook="notebooks/prices.ipynb",
        prices="<results>/tables/prices.csv",
        code=[*FIGURE_CODE, "tare/analysis/image_costs.py"],
    output:
        notebook="<results>/notebooks/prices.ipynb",
        page=report(
            "<results>/notebooks/prices.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "prices"},
        ),
        figure=report(
            "<results>/figures/prices.svg",
            caption="captions/prices.rst",
            category="Images",
            labels={"workload": "all", "figure": "what an image costs"},
        ),
    log:
        "<results>/logs/notebooks/prices.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw what an image costs"
    shell:
        "python -m tare notebook prices --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"


rule draw_roofline:
    input:
        notebook="notebooks/roofline.ipynb",
        metrics="<results>/tables/metrics.parquet",
        families="<results>/tables/families.csv",
        ceilings="<results>/ceilings.json",
        code=[*FIGURE_CODE, "tare/analysis/ceilings.py", "tare/worker/families.py"],
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
        families=[
            report(
                f"<results>/figures/roofline_{workload}.svg",
                caption="captions/roofline_families.rst",
                category="Roofline",
                labels={"workload": workload, "figure": "roofline by operator"},
            )
            for workload in WORKLOADS
        ],
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


rule draw_published:
    input:
        notebook="notebooks/nyu2022.ipynb",
        paper="config/published/nyu2022.yaml",
        kernels="config/published/nyu2022_kernels.csv",
        devices="config/devices.yaml",
        published="<results>/tables/published.csv",
        claims="<results>/tables/claims.csv",
        metrics="<results>/tables/metrics.parquet",
        ceilings="<results>/ceilings.json",
        code=[*FIGURE_CODE, *AUDIT],
    output:
        notebook="<results>/notebooks/nyu2022.ipynb",
        page=report(
            "<results>/notebooks/nyu2022.html",
            caption="captions/notebook.rst",
            category="Notebooks",
            labels={"notebook": "nyu2022"},
        ),
        figures=[
            report(
                f"<results>/figures/nyu2022_fig{number:02d}.svg",
                caption="captions/nyu2022.rst",
                category="nyu2022",
                labels={"workload": workload, "figure": f"{number}: {title}"},
            )
            for number, (workload, title) in PAPER_FIGURES.items()
        ],
    log:
        "<results>/logs/notebooks/nyu2022.log",
    params:
        results=subpath(output.notebook, ancestor=2),
        workloads=WORKLOADS,
    message:
        "draw the paper's figures beside this machine's"
    shell:
        "python -m tare notebook nyu2022 --results {params.results:q} --workloads {params.workloads:q}"
        " --out {output.notebook:q} 2> {log:q}"
