# Records to tables: every number with its kind, every comparison with its interval.


PAPER_FILES = [
    *(
        checkout_file(f"config/published/{path.name}")
        for name in PAPERS
        for path in papers.files(name)
    ),
    checkout_file("papers/findings.csv"),
    checkout_file("config/devices.yaml"),
]
COPIES = benchmarks_here("copies")


rule extract_tables:
    input:
        campaigns=CAMPAIGNS,
        # Not read here: the table of the ledger lists it, and is made after its last row.
        starts=rules.measure_starts.output.sealed if WORKLOADS else [],
        profiles=PROFILES,
        stack_profiles=STACK_PROFILES,
        pipelines=PIPELINES,
        copies=COPIES,
    output:
        metrics="<results>/tables/metrics.parquet",
        metrics_csv="<results>/tables/metrics.csv",
        verdicts="<results>/tables/verdicts.csv",
        job_length="<results>/tables/job_length.csv",
        decisions="<results>/tables/decisions.csv",
        decisions_json="<results>/tables/decisions.json",
        counts="<results>/tables/counts.csv",
        operators="<results>/tables/operators.csv",
        families="<results>/tables/families.csv",
        stack_profiles="<results>/tables/stack_profiles.csv",
        samples="<results>/tables/samples.csv",
        steps="<results>/tables/steps.csv",
        device_samples="<results>/tables/device_samples.csv",
        fingerprints="<results>/tables/fingerprints.csv",
        kernels="<results>/tables/kernels.csv",
        ledger="<results>/tables/ledger.csv",
    log:
        "<logs>/tables.log",
    localrule: True
    threads: CORES
    params:
        study=study_json("tables"),
        code=EXTRACTION,
        stamps=stamped,
        folder=subpath(output.metrics, parent=True),
    message:
        "extract metrics and judge them" + ON_MACHINE
    shell:
        ON
        + "python -m tare tables --study {params.study:q} --campaigns {input.campaigns:q}"
        " --profiles {input.profiles:q} --stack-profiles {input.stack_profiles:q} --pipelines {input.pipelines:q}"
        " --copies {input.copies:q} --jobs {threads} --out {params.folder:q} 2> {log:q}"


rule judge_published:
    input:
        paper=PAPER_FILES,
        tables=rules.extract_tables.output,
        image_costs=rules.count_image_costs.output if WORKLOADS else [],
        profiles=PROFILES,
        machine=rules.describe_machine.output.record,
        probes=collect(
            layout.probe_record(AT, "{env}"), env=ENVIRONMENTS, allow_missing=True
        ),
    output:
        published="<results>/tables/published.csv",
        claims="<results>/tables/claims.csv",
    log:
        "<logs>/audit.log",
    localrule: True
    params:
        papers=PAPERS,
        code=AUDIT,
        results=subpath(output.published, ancestor=2),
        folder=subpath(output.published, parent=True),
    message:
        "judge the published numbers and claims" + ON_MACHINE
    shell:
        ON
        + "python -m tare audit --paper {params.papers:q} --results {params.results:q} --out {params.folder:q} 2> {log:q}"


rule summarize_environment:
    input:
        rounds=lambda wildcards: headline(
            "rounds", ["host", wildcards.env], wildcards.get("machine", AT)
        ),
        profiles=collect(
            layout.profile_record(STUDY, AT, "{workload}", "{env}"),
            workload=WORKLOADS,
            allow_missing=True,
        ),
        copies=COPIES,
    output:
        metrics="<results>/environments/{env}/metrics.csv",
        job_length="<results>/environments/{env}/job_length.csv",
        verdicts=report(
            "<results>/environments/{env}/verdicts.csv",
            caption="captions/environment.rst",
            category="Environments",
            labels={"environment": "{env}", "table": "verdicts"},
        ),
    log:
        "<logs>/environments/{env}.log",
    localrule: True
    params:
        study=study_json("tables"),
        code=EXTRACTION,
        folder=subpath(output.metrics, parent=True),
    message:
        "{wildcards.env} compared with the host: metrics, verdicts, cost by job length"
        + ON_MACHINE
    shell:
        ON
        + "python -m tare tables --study {params.study:q} --campaigns {input.rounds:q}"
        " --profiles {input.profiles:q} --copies {input.copies:q} --only metrics verdicts job_length --show"
        " --out {params.folder:q} 2> {log:q}"
