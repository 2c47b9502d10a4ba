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
    logs=f"results/logs/{STUDY}/{AT}" if SEVERAL else f"results/logs/{STUDY}",


wildcard_constraints:
    at=rf"(?:@(?:{'|'.join(['cpu', 'cuda', *IMAGE_FOLDERS])})/)?",
    batch=r"\d+",
    choice=r"(?:@[a-z0-9]+(?:-skip)?)?",
    arm=r"[a-z_]+-[a-z0-9.+-]+",
    dataset=r"[a-z][a-z0-9_]*",
    environments=r"[a-z0-9_@+-]+",
    machine="|".join(map(re.escape, MACHINES)),
    env=r"(?!(?:oci|tree)\b|host[.]stack-)[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)?",
    notebook=r"[a-z_]+",
    reference=r"[a-z0-9][a-z0-9._-]*",
    stack=r"[a-z][a-z0-9.-]*",
    study=r"[a-z][a-z0-9_-]*",
    varied=r"[a-z][a-z0-9_.+-]*",
    workload=r"[a-z][a-z0-9_-]*",


include: "rules/data.smk"


refuse_without_shared_files()
refuse_moved_paths()


include: "rules/containers.smk"
include: "rules/runs.smk"


if WORKLOADS:  # of commands alone there is none: their images are the user's own

    include: "rules/image_costs.smk"


include: "rules/metrics.smk"
include: "rules/reference.smk"
include: "rules/notebooks.smk"
include: "rules/report.smk"


if SEVERAL:

    include: "rules/machines.smk"


onstart:
    refuse_to_measure_here()
    note_places()
    attend_to_groups()
    workflows.note(Path.cwd())
    if CHOSEN is not None:
        minutes_module.declare(STUDIED, CHOSEN, AT)


rule all:
    default_target: True
    input:
        collect(f"{RESULTS}/report", machine=MACHINES),
        collect(f"{RESULTS}/tables/metrics.csv", machine=MACHINES),
        rules.compare_machines.output if SEVERAL and len(MACHINES) > 1 else [],


refuse_rule_names()

for name in ENVIRONMENTS:

    rule:
        name:
            name
        input:
            collect(form(name), machine=MACHINES) if WORKLOADS else [],
            collect(
                layout.profile_record(STUDY, AT, "{workload}", "{env}"),
                workload=WORKLOADS,
                env=name,
                machine=MACHINES,
            ),
            collect(
                rules.summarize_environment.output.verdicts, env=name, machine=MACHINES
            ),


refuse_mistyped_environments()
