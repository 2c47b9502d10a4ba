# What an image costs: first starts, and a table of seconds and bytes. More than one stack can be counted.
COUNTED_STACKS = [STACK, *config["stacks"]]
STARTS = study_module.campaign_name("starts", ENVIRONMENTS)


rule measure_starts:
    input:
        host=f"results/images/{STACK}/host.json",
        images=collect(f"results/images/{STACK}/{{env}}.json", env=ENVIRONMENTS),
    output:
        sealed=f"results/campaigns/{STUDY}/{WORKLOADS[0]}/{STARTS}/sealed.json",
    log:
        "<logs>/starts.log",
    priority: 30
    retries: 0
    threads: workflow.cores
    resources:
        machine=1,
    params:
        study=study_module.part_of(STUDIED, "starts", WORKLOADS[0]),
        code=closure.code_sha256(
            "starts", WORKLOADS[0], ENVIRONMENTS, [], [stack_framework(STACK)]
        ),
        workload=WORKLOADS[0],
        environments=ENVIRONMENTS,
        images=subpath(input.host, parent=True),
    message:
        "start every environment, from an empty page cache and from a full one"
    shell:
        "python -m tare starts --study {params.study:q} --workload {params.workload:q}"
        " --environments {params.environments:q} --images {params.images:q} --out {output.sealed:q} 2> {log:q}"


rule count_image_costs:
    input:
        images=[
            f"results/images/{stack}/{env}.json"
            for stack in COUNTED_STACKS
            for env in STUDIED.environments_of(stack)
        ],
        shared=collect(
            "results/images/{stack}/{record}.json",
            stack=COUNTED_STACKS,
            record=["tree", "oci"],
        ),
        oci=f"results/images/{STACK}/oci.json",
        starts=rules.measure_starts.output.sealed,
    output:
        table="<results>/tables/image_costs.csv",
    log:
        "<logs>/image_costs.log",
    params:
        study=study_json("image_costs"),
        code=EXTRACTION,
        images=subpath(input.oci, ancestor=2),
    message:
        "count what images cost: seconds, bytes, first starts"
    shell:
        "python -m tare image-costs --study {params.study:q} --images {params.images:q} --starts {input.starts:q}"
        " --out {output.table:q} 2> {log:q}"
