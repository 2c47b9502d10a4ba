# What an image costs: first starts, and a table of seconds and bytes. More than one stack can be counted.
COUNTED_STACKS = list(STUDIED.stacks_needed)
NAIVE_IMAGE = (
    [layout.naive_record(Path(STACK_IMAGES), AT)] if STUDIED.naive_image else []
)
NAIVE_CODE = [
    "tare/experiments/naive_image.py",
    *(f"tare/images/{name}.py" for name in ("tree", "oci")),
]
STARTS = layout.campaign_name("starts", ENVIRONMENTS)
# Whole runs of the same workload begin with the warm starts, where the study has them begin warm.
RUNS = [
    layout.sealed_record(STUDY, AT, WORKLOADS[0], name)
    for name in [layout.campaign_name("rounds", ENVIRONMENTS)]
    if STUDIED.warm_in_runs
]


rule measure_starts:
    input:
        host=form("host"),
        images=collect(form("{env}"), env=ENVIRONMENTS, allow_missing=True),
    output:
        sealed=layout.sealed_record(STUDY, AT, WORKLOADS[0], STARTS),
    log:
        "<logs>/starts.log",
    priority: 30
    retries: 0
    group:
        group_of("measure_starts")
    threads: CORES
    resources:
        **on_machine("measure_starts"),
    params:
        **on_node("measure_starts"),
        kept=kept,
        study=lambda wildcards: study_module.part_of(
            study_on(wildcards), "starts", WORKLOADS[0]
        ),
        code=closure.code_sha256(
            "starts", WORKLOADS[0], ENVIRONMENTS, [], [stack_framework(STACK)]
        ),
        workload=WORKLOADS[0],
        environments=ENVIRONMENTS,
        images=subpath(input.host, parent=True),
    message:
        "start every environment, from an empty page cache and from a full one"
        + ON_MACHINE
    shell:
        ON + "TARE_CODE={params.code:q} "
        "python -m tare starts --study {params.study:q} --workload {params.workload:q}"
        " --environments {params.environments:q} --images {params.images:q} --out {output.sealed:q} 2> {log:q}"


# The stack's image as a user would write it by hand, by two builders: for studies that ask for it.
rule build_naive_image:
    input:
        dockerfile=checkout_file("containers/naive/Dockerfile"),
        definition=checkout_file("containers/naive/apptainer.def"),
        recipe=checkout_file("containers/recipe.yaml"),
        tree=layout.stack_record(STACK_FOLDER, "tree"),
    output:
        record=layout.naive_record(STACK_FOLDER, "{machine}"),
    log:
        "results/logs/images/{at}{stack}/{machine}/naive.log",
    priority: 30
    retries: 0
    threads: CORES
    resources:
        **on_machine("build_naive_image"),
    params:
        **on_node("build_naive_image"),
        variant=variant,
        code=closure.programs_sha256(
            [*NAIVE_CODE, *closure.adapters({"docker", "apptainer"})]
        ),
    message:
        "build the naive image of {wildcards.stack} with docker and with apptainer"
        + ON_MACHINE
    shell:
        ON
        + "python -m tare naive-image --stack {wildcards.stack:q} --variant {params.variant:q}"
        " --out {output.record:q} 2> {log:q}"


rule count_image_costs:
    input:
        images=[
            layout.stack_record(Path(IMAGES, stack), env)
            for stack in COUNTED_STACKS
            for env in STUDIED.environments_of(stack)
        ],
        tree=form("tree"),
        shared=[path for stack in COUNTED_STACKS for path in stack_records(stack)],
        starts=rules.measure_starts.output.sealed,
        runs=RUNS,
        naive=NAIVE_IMAGE,
    output:
        table="<results>/tables/image_costs.csv",
    log:
        "<logs>/image_costs.log",
    localrule: True
    params:
        study=study_json("image_costs"),
        code=EXTRACTION,
        images=subpath(input.tree, ancestor=2),
        runs=[f"--runs {path}" for path in RUNS],
        naive=[f"--naive {path}" for path in NAIVE_IMAGE],
    message:
        "count what images cost: seconds, bytes, first starts" + ON_MACHINE
    shell:
        ON
        + "python -m tare image-costs --study {params.study:q} --images {params.images:q} --starts {input.starts:q}"
        " {params.runs} {params.naive} --out {output.table:q} 2> {log:q}"
