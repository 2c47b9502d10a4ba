# The one page: everything that was found, self-contained.
import json

from tare.model.registry import describe_workload

REPORT_CODE = [
    *FIGURE_CODE,
    *sorted(str(path) for path in Path("tare").glob("report/*.py")),
    "tare/literature/finding.py",
    "tare/analysis/causes.py",
    "tare/analysis/other_designs.py",
    "tare/analysis/image_costs.py",
    "tare/analysis/suspects.py",
    *sorted(str(path) for path in Path("tare/report/templates").rglob("*.*")),
]
DATASETS = sorted({describe_workload(workload)["dataset"] for workload in WORKLOADS})


rule build_report:
    input:
        tables=collect(
            "<results>/tables/{table}.csv",
            table=[
                "metrics",
                "verdicts",
                "operators",
                "families",
                "samples",
                "fingerprints",
                "kernels",
                "device_samples",
                "prices",
                "published",
                "claims",
            ],
        ),
        metrics="<results>/tables/metrics.parquet",
        notebooks=collect(
            "<results>/notebooks/{notebook}.html",
            notebook=[
                "batch_size",
                "environments",
                "roofline",
                "why",
                "nyu2022",
                "prices",
                *(["choices"] if CHOICE_WORKLOADS else []),
                *(["device"] if DEVICE_WORKLOADS else []),
                *(["reference"] if REFERENCES else []),
            ],
        ),
        roofline="<results>/figures/roofline.svg",
        families=collect(
            "<results>/figures/roofline_{workload}.svg", workload=WORKLOADS
        ),
        prices="<results>/figures/prices.svg",
        batch=collect("<results>/figures/batch_size_{workload}.svg", workload=WORKLOADS),
        environments=collect(
            "<results>/figures/{figure}_{workload}.svg",
            figure=list(ENVIRONMENT_FIGURES),
            workload=WORKLOADS,
        ),
        paper=collect(
            "<results>/figures/nyu2022_fig{number}.svg",
            number=[f"{number:02d}" for number in PAPER_FIGURES],
        ),
        published="config/published/nyu2022.yaml",
        why=collect("<results>/figures/why_{workload}.svg", workload=WORKLOADS),
        arms=collect("<results>/figures/arms_{workload}.svg", workload=ARM_WORKLOADS),
        stacks=collect(
            "<results>/figures/stacks_{workload}.svg", workload=STACK_WORKLOADS
        ),
        choices=collect(
            "<results>/figures/choices_{workload}.svg", workload=CHOICE_WORKLOADS
        ),
        device=collect(
            "<results>/figures/{figure}_{workload}.svg",
            figure=list(DEVICE_FIGURES),
            workload=DEVICE_WORKLOADS,
        ),
        references=collect("results/reference/{name}/reference.json", name=REFERENCES),
        reference_tables=collect(
            "results/reference-tables/{name}/metrics.csv", name=REFERENCES
        ),
        machine="<results>/machine.json",
        ceilings="<results>/ceilings.json",
        probes=collect("results/probe/{env}.json", env=PROBED),
        images=collect(f"results/images/{STACK}/{{env}}.json", env=ENVIRONMENTS),
        data=collect("results/data/{dataset}.json", dataset=DATASETS),
        campaigns=all_campaigns(),
        sweeps=collect(
            "results/campaigns/{study}/{workload}/sweep/sealed.json",
            study=STUDY,
            workload=WORKLOADS,
        ),
        benchmarks=sorted(
            str(path) for path in Path("results/benchmarks").glob("protocols.json")
        ),
        code=REPORT_CODE,
    output:
        page=report(
            "<results>/report/index.html",
            caption="captions/report.rst",
            category="Report",
            labels={"report": "the whole report"},
        ),
    log:
        "<results>/logs/report.log",
    params:
        study=json.dumps(config, sort_keys=True),
        results=subpath(output.page, ancestor=2),
    message:
        "write the report"
    shell:
        "python -m tare report --results {params.results:q} --study {params.study:q}"
        " --out {output.page:q} 2> {log:q}"
