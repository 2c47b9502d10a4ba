# Tare weighs the container. `snakemake --cores 1 all` reproduces the study in config/config.yaml;
# `snakemake --cores 1 docker` weighs one environment alone; presets: `snakemake --cores 1 all --configfile config/smoke.yaml`


import os

from snakemake.utils import min_version

from tare.core.files import project_root

min_version("9.19")  # tests/unit/test_snakemake_version.py holds what asks for it


configfile: os.path.relpath(project_root() / "config/config.yaml")


include: "rules/common.smk"


pathvars:
    results=RESULTS,
    logs=f"results/logs/{STUDY}",


wildcard_constraints:
    at=r"(?:@(?:cpu|cuda)/)?",
    batch=r"\d+",
    choice=r"(?:@[a-z0-9]+(?:-skip)?)?",
    arm=r"[a-z_]+-[a-z0-9.+-]+",
    dataset=r"[a-z][a-z0-9_]*",
    environments=r"[a-z0-9_@+-]+",
    machine=re.escape(MACHINE),
    env=r"(?!(?:oci|tree)\b|host[.]stack-)[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)?",
    notebook=r"[a-z_]+",
    reference=r"[a-z0-9][a-z0-9._-]*",
    stack=r"[a-z][a-z0-9.-]*",
    study=r"[a-z][a-z0-9_-]*",
    varied=r"[a-z][a-z0-9_.+-]*",
    workload=r"[a-z][a-z0-9_-]*",


include: "rules/data.smk"


refuse_moved_paths()


include: "rules/containers.smk"
include: "rules/runs.smk"


if WORKLOADS:  # of commands alone there is none: their images are the user's own

    include: "rules/image_costs.smk"


include: "rules/metrics.smk"
include: "rules/reference.smk"
include: "rules/notebooks.smk"
include: "rules/report.smk"


onstart:
    workflows.note(Path.cwd())
    if CHOSEN is not None:
        minutes_module.declare(STUDIED, CHOSEN, MACHINE)


rule all:
    default_target: True
    input:
        "<results>/report",
        "<results>/tables/metrics.csv",


refuse_rule_names()

for name in ENVIRONMENTS:

    rule:
        name:
            name
        input:
            form(name) if WORKLOADS else [],
            collect(
                layout.profile_record(STUDY, MACHINE, "{workload}", "{env}"),
                workload=WORKLOADS,
                env=name,
            ),
            collect(rules.summarize_environment.output.verdicts, env=name),


refuse_mistyped_environments()
