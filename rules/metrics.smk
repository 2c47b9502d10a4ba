# Records to tables: every number with its kind, every comparison with its interval.
EXTRACTION = [
    *sorted(str(path) for path in Path("tare/cuda").glob("*.py")),
    "tare/analysis/cause_rows.py",
    "tare/analysis/device_rows.py",
    "tare/analysis/extract.py",
    "tare/worker/families.py",
    "tare/stats/intervals.py",
    "tare/analysis/launch_rows.py",
    "tare/analysis/metrics.py",
    "tare/model/tables.py",
    "tare/profilers/torch_trace.py",
    "tare/experiments/turns.py",
    "tare/analysis/verdicts.py",
]

AUDIT = [
    *sorted(str(path) for path in Path("tare/literature").glob("*.py")),
    "tare/analysis/causes.py",
    "tare/literature/claims.py",
    "tare/model/datasheet.py",
    "tare/stats/intervals.py",
    "tare/literature/published.py",
    "tare/literature/published_file.py",
    "tare/model/quantities.py",
    "tare/model/tables.py",
]


rule extract_tables:
    input:
        campaigns=all_campaigns(),
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
        code=EXTRACTION,
    output:
        metrics="<results>/tables/metrics.parquet",
        metrics_csv="<results>/tables/metrics.csv",
        verdicts="<results>/tables/verdicts.csv",
        operators="<results>/tables/operators.csv",
        families="<results>/tables/families.csv",
        samples="<results>/tables/samples.csv",
        device_samples="<results>/tables/device_samples.csv",
        fingerprints="<results>/tables/fingerprints.csv",
        kernels="<results>/tables/kernels.csv",
    log:
        "<results>/logs/tables.log",
    params:
        study=study_json("tables"),
        folder=subpath(output.metrics, parent=True),
    message:
        "extract metrics and judge them"
    shell:
        "python -m tare tables --study {params.study:q} --campaigns {input.campaigns:q} {input.sweeps:q}"
        " --profiles {input.profiles:q} --out {params.folder:q} 2> {log:q}"


rule judge_published:
    input:
        paper="config/published/nyu2022.yaml",
        kernels="config/published/nyu2022_kernels.csv",
        devices="config/devices.yaml",
        tables=rules.extract_tables.output,
        machine="<results>/machine.json",
        probes=collect("results/probe/{env}.json", env=PROBED),
        code=AUDIT,
    output:
        published="<results>/tables/published.csv",
        claims="<results>/tables/claims.csv",
    log:
        "<results>/logs/audit.log",
    params:
        results=subpath(output.published, ancestor=2),
        folder=subpath(output.published, parent=True),
    message:
        "judge the published numbers and claims"
    shell:
        "python -m tare audit --results {params.results:q} --out {params.folder:q} 2> {log:q}"


rule summarize_environment:
    input:
        rounds=lambda wildcards: headline("rounds", ["host", wildcards.env]),
        turns=lambda wildcards: headline("turns", ["host", wildcards.env]),
        profiles=collect(
            "results/profiles/{study}/{workload}/{{env}}/profile.json",
            study=STUDY,
            workload=WORKLOADS,
        ),
        code=EXTRACTION,
    output:
        metrics="<results>/environments/{env}/metrics.csv",
        verdicts="<results>/environments/{env}/verdicts.csv",
    log:
        "<results>/logs/environments/{env}.log",
    params:
        study=study_json("tables"),
        folder=subpath(output.metrics, parent=True),
    message:
        "{wildcards.env} beside the host: metrics and verdicts"
    shell:
        "python -m tare tables --study {params.study:q} --campaigns {input.rounds:q} {input.turns:q}"
        " --profiles {input.profiles:q} --only metrics verdicts --show --out {params.folder:q} 2> {log:q}"
