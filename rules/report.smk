# The pages: index.html is the answer, the others lie beside it, and results/studies.html links all studies.
import json

TITLES = {"index": "the answer", "print": "the whole report in one page"}
# For Snakemake's own --report. Which pages a study has is known when they are written, and only files of one folder
# are embedded side by side, so that links between them work: no outputs, but a folder that `all` looks at once it is
# there.
PAGES = [
    shown(
        folder,
        patterns=["{page}.html"],
        caption="rules/captions/report.rst",
        category="Report",
        labels=lambda wildcards: {"report": TITLES.get(wildcards.page, wildcards.page)},
    )
    for folder in [f"{RESULTS}/report"]
    if any(Path(folder).glob("*.html"))
]


rule build_report:
    input:
        tables=rules.extract_tables.output,
        published=rules.judge_published.output if PAPERS else [],
        image_costs=rules.count_image_costs.output,
        paper=PAPER_FILES,
        notebooks=rules.draw_notebooks.output,
        references=collect(
            checkout_file(layout.reference_record("{name}")), name=REFERENCES
        ),
        reference_tables=collect(
            layout.reference_table("{name}", "metrics.csv"), name=REFERENCES
        ),
        machine=rules.describe_machine.output.record,
        ceilings=ROOFS,
        probes=collect(layout.probe_record("{env}"), env=ENVIRONMENTS),
        host=form("host"),
        images=collect(form("{env}"), env=ENVIRONMENTS),
        data=sorted({data_record(workload) for workload in WORKLOADS}),
        pipelines=PIPELINES,
        network=rules.measure_network.output.record if GROUPED_IN else [],
        campaigns=CAMPAIGNS,
        benchmarks=sorted(
            str(path)
            for name in ("copies", "protocols")
            for path in Path("results/benchmarks").glob(f"{name}.json")
        ),
    output:
        page="<results>/report/index.html",
    log:
        "<logs>/report.log",
    params:
        study=json.dumps(STUDIED.to_json(), sort_keys=True),
        code=DRAWING,
        results=subpath(output.page, ancestor=2),
        images=subpath(input.host, ancestor=2),
    message:
        "write the report"
    shell:
        "python -m tare report --results {params.results:q} --study {params.study:q} --images {params.images:q}"
        " --out {output.page:q} 2> {log:q}"
