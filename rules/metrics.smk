# Records to tables: every number with its kind, every comparison with its interval.


rule extract_tables:
    input:
        rounds=collect(
            "results/campaigns/{study}/{workload}/{campaign}/sealed.json",
            study=STUDY,
            workload=WORKLOADS,
            campaign=JOINT,
        ),
        sweeps=collect(
            "results/campaigns/{study}/{workload}/sweep/sealed.json",
            study=STUDY,
            workload=WORKLOADS,
        ),
        profiles=collect(
            "results/profiles/{study}/{workload}/{env}/profile.json",
            study=STUDY,
            workload=WORKLOADS,
            env=ENVIRONMENTS,
        ),
        code=[
            "tare/extract.py",
            "tare/metrics.py",
            "tare/traces.py",
            "tare/verdicts.py",
            "tare/tables.py",
        ],
    output:
        metrics="<results>/tables/metrics.parquet",
        metrics_csv="<results>/tables/metrics.csv",
        verdicts="<results>/tables/verdicts.csv",
        operators="<results>/tables/operators.csv",
        samples="<results>/tables/samples.csv",
        fingerprints="<results>/tables/fingerprints.csv",
    log:
        "<results>/logs/tables.log",
    params:
        folder=subpath(output.metrics, parent=True),
    message:
        "extract metrics and judge them"
    shell:
        "python -m tare tables --campaigns {input.rounds:q} {input.sweeps:q} --profiles {input.profiles:q}"
        " --out {params.folder:q} 2> {log:q}"


rule summarize_environment:
    input:
        rounds=lambda wildcards: collect(
            "results/campaigns/{study}/{workload}/{campaign}/sealed.json",
            study=STUDY,
            workload=WORKLOADS,
            campaign=study_module.campaign_name(["host", wildcards.env]),
        ),
        profiles=collect(
            "results/profiles/{study}/{workload}/{{env}}/profile.json",
            study=STUDY,
            workload=WORKLOADS,
        ),
        code=[
            "tare/extract.py",
            "tare/metrics.py",
            "tare/traces.py",
            "tare/verdicts.py",
            "tare/tables.py",
        ],
    output:
        metrics="<results>/environments/{env}/metrics.csv",
        verdicts="<results>/environments/{env}/verdicts.csv",
    log:
        "<results>/logs/environments/{env}.log",
    params:
        folder=subpath(output.metrics, parent=True),
    message:
        "{wildcards.env} beside the host: metrics and verdicts"
    shell:
        "python -m tare tables --campaigns {input.rounds:q} --profiles {input.profiles:q}"
        " --only metrics verdicts --show --out {params.folder:q} 2> {log:q}"
