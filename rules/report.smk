# The pages: index.html is the answer, the others are next to it, and results/studies.html links all studies.
import json

TITLES = {"index": "the answer", "print": "the whole report in one page"}


rule build_report:
    input:
        tables=rules.extract_tables.output,
        published=rules.judge_published.output if PAPERS else [],
        image_costs=rules.count_image_costs.output if WORKLOADS else [],
        paper=PAPER_FILES,
        notebooks=rules.draw_notebooks.output,
        references=[str(place) for place in REFERENCES.values()],
        reference_tables=collect(
            layout.reference_table("{name}", "metrics.csv"), name=REFERENCES
        ),
        machine=rules.describe_machine.output.record,
        ceilings=ROOFS,
        probes=collect(
            layout.probe_record(AT, "{env}"), env=ENVIRONMENTS, allow_missing=True
        ),
        host=form("host") if WORKLOADS else [],
        images=(
            collect(form("{env}"), env=ENVIRONMENTS, allow_missing=True)
            if WORKLOADS
            else []
        ),
        data=sorted({data_record(workload) for workload in WORKLOADS}),
        pipelines=PIPELINES,
        network=rules.measure_network.output.record if GROUPED_IN else [],
        campaigns=CAMPAIGNS,
        benchmarks=benchmarks_here("copies"),
        answers=answers_here,
    output:
        # Which pages a study has is known when they are written. Snakemake's own report embeds files of one folder side
        # by side, so that links between them work.
        pages=shown(
            directory("<results>/report"),
            patterns=["{page}.html"],
            caption="captions/report.rst",
            category="Report",
            labels=lambda wildcards: {
                "report": TITLES.get(wildcards.page, wildcards.page)
            },
        ),
    log:
        "<logs>/report.log",
    localrule: True
    params:
        study=lambda wildcards: json.dumps(
            study_on(wildcards).to_json(), sort_keys=True
        ),
        code=DRAWING,
        results=subpath(output.pages, parent=True),
        images=lambda wildcards: there(IMAGES, wildcards),
    message:
        "write the report" + ON_MACHINE
    shell:
        ON
        + "python -m tare report --results {params.results:q} --study {params.study:q} --images {params.images:q}"
        " --out {output.pages:q}/index.html 2> {log:q}"
