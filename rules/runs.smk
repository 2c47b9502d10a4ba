# Whatever launches something. Of `machine` the default profile has one: who takes it measures alone. Locally every
# core is taken as well, so that nothing else of ours runs meanwhile; elsewhere the commands' own lock makes others wait.
# A trial launch is timed by nobody: it takes one core, while trees and images are made, which wait for what it finds.
# Headlines come first: of what can run, what has the highest priority does.


rule probe_environment:
    output:
        record=layout.probe_record("{machine}", "{env}"),
    log:
        "results/logs/probe/{machine}/{env}.log",
    priority: 110
    group:
        group_of("probe_environment")
    threads: ANY_CORES
    resources:
        **on_machine("probe_environment"),
    params:
        **on_node("probe_environment"),
        kept=kept,
        code=adapter_code,
        programs=adapter_programs,
    message:
        "try a launch in {wildcards.env}" + ON_MACHINE
    shell:
        ON
        + "python -m tare probe --env {wildcards.env:q} --out {output.record:q} 2> {log:q}"


rule describe_machine:
    output:
        record=layout.of_machine(Path(RESULTS), AT, layout.MACHINE_FILE),
    log:
        f"results/logs/{STUDY}/{AT}/machine.log",
    group:
        group_of("describe_machine")
    threads: ANY_CORES
    resources:
        **on_machine("describe_machine", whole=False),
    params:
        **on_node("describe_machine"),
        **LIMITED,
        nodes=f" --nodes {WIDEST}" if WIDEST > 1 else "",
        kept=kept,
    message:
        "describe this machine" + ON_MACHINE
    shell:
        ON + "python -m tare machine{params.nodes} --out {output.record:q} 2> {log:q}"


rule measure_ceilings:
    input:
        devices=checkout_file("config/devices.yaml"),
        image=form("host"),
    output:
        record=layout.ceilings_record(AT, CEILINGS),
    log:
        f"results/logs/ceilings/{AT}/{CEILINGS}.log",
    priority: 60
    retries: 0
    group:
        group_of("measure_ceilings")
    threads: CORES
    resources:
        **on_machine("measure_ceilings"),
    params:
        **on_node("measure_ceilings"),
        kept=kept,
        study=study_json("ceilings"),
        images=subpath(input.image, parent=True),
    message:
        "measure the ceilings of this machine: copy, triad, matrix products"
        + ON_MACHINE
    shell:
        ON
        + "python -m tare ceilings --study {params.study:q} --images {params.images:q}"
        " --out {output.record:q} 2> {log:q}"


rule take_ceilings:
    input:
        rules.measure_ceilings.output.record,
    output:
        record=layout.of_machine(Path(RESULTS), AT, layout.CEILINGS_FILE),
    log:
        f"results/logs/{STUDY}/{AT}/take_ceilings.log",
    localrule: True
    message:
        "take the ceilings of this machine, which studies share" + ON_MACHINE
    shell:
        "cp {input:q} {output.record:q} 2> {log:q}"


# They are measured with PyTorch: a study on a stack of another framework has none, and its page says so.
ROOFS = (
    [rules.take_ceilings.output.record]
    if WORKLOADS and stack_framework(STACK) == DEFAULT_FRAMEWORK
    else []
)


rule run_rounds:
    input:
        images=campaign_images,
        data=dataset_record,
    output:
        record=layout.sealed_record(
            "{study}", "{machine}", "{workload}", "rounds.{environments}"
        ),
    log:
        "results/logs/{study}/{machine}/rounds/{workload}/{environments}.log",
    wildcard_constraints:
        workload="|".join(WORKLOADS) or "(?!)",
    priority: 80
    retries: 0
    threads: CORES
    resources:
        **on_machine("run_rounds"),
    params:
        **on_node("run_rounds"),
        kind="rounds",
        study=study_json("rounds"),
        code=code_of("rounds"),
        options=campaign_options,
        images=STACK_IMAGES,
    message:
        "{wildcards.workload}: whole runs and training steps, {wildcards.environments}"
        + ON_MACHINE
    shell:
        ON + "TARE_CODE={params.code:q} "
        "python -m tare {params.kind} --study {params.study:q} --workload {wildcards.workload:q} {params.options}"
        " --images {params.images:q} --data {input.data:q} --out {output.record:q} 2> {log:q}"


use rule run_rounds as run_rounds_of_arm with:
    input:
        images=campaign_images,
        data=dataset_record,
        co_runner=co_runner_data,
    output:
        record=layout.sealed_record(
            "{study}", "{machine}", "{workload}", "rounds.{environments}.{varied}"
        ),
    log:
        "results/logs/{study}/{machine}/rounds/{workload}/{environments}.{varied}.log",
    priority: 20
    resources:
        **on_machine("run_rounds_of_arm"),
    params:
        **on_node("run_rounds_of_arm"),
    message:
        "{wildcards.workload}: whole runs and training steps, {wildcards.environments}.{wildcards.varied}"
        + ON_MACHINE


if OWN_JOBS:

    rule run_command:
        output:
            record=layout.sealed_record(
                "{study}", "{machine}", "{workload}", "rounds.{environments}"
            ),
        log:
            "results/logs/{study}/{machine}/rounds/{workload}/{environments}.log",
        wildcard_constraints:
            workload="|".join(OWN_JOBS),
        priority: 80
        retries: 0
        threads: CORES
        resources:
            **on_machine("run_command"),
        params:
            **on_node("run_command"),
            study=study_json("command"),
            code=command_code,
            environments=campaign_environments,
        message:
            "{wildcards.workload}: whole runs of a command, {wildcards.environments}"
            + ON_MACHINE
        shell:
            ON + "TARE_CODE={params.code:q} "
            "python -m tare command --study {params.study:q} --workload {wildcards.workload:q}"
            " --environments {params.environments:q} --out {output.record:q} 2> {log:q}"


if WORKLOADS:

    rule run_causes:
        # One launch of each environment serves every workload: a campaign of each.
        input:
            images=campaign_images,
            data=sorted({data_record(one.workload) for one in CAUSES}),
        output:
            sealed=[
                layout.sealed_record(
                    STUDY, "{machine}", one.workload, "causes.{environments}"
                )
                for one in CAUSES
            ],
        log:
            f"results/logs/{STUDY}/{{machine}}/causes/{{environments}}.log",
        priority: 50
        retries: 0
        threads: CORES
        resources:
            **on_machine("run_causes"),
        params:
            **on_node("run_causes"),
            study=study_json("causes"),
            code=code_of_jobs("causes"),
            jobs=lambda wildcards, output: jobs_options(output.sealed),
            options=campaign_options,
            images=STACK_IMAGES,
        message:
            "kernels, operators and files, {wildcards.environments}" + ON_MACHINE
        shell:
            ON + "TARE_CODE={params.code:q} "
            "python -m tare causes --study {params.study:q} {params.options} --images {params.images:q} {params.jobs}"
            " 2> {log:q}"


use rule run_rounds as run_sweep with:
    input:
        images=form("host"),
        data=dataset_record,
    output:
        record=layout.sealed_record("{study}", "{machine}", "{workload}", "sweep"),
    log:
        "results/logs/{study}/{machine}/sweep/{workload}.log",
    priority: 40
    resources:
        **on_machine("run_sweep"),
    params:
        **on_node("run_sweep"),
        kind="sweep",
        study=study_json("sweep"),
        code=code_of("sweep"),
        options="",
        images=subpath(input.images, parent=True),
    message:
        "{wildcards.workload}: batch sweep on the host" + ON_MACHINE


if WORKLOADS:

    rule run_profile:
        # One command profiles every workload in an environment, one launch after the other.
        input:
            images=form("{env}"),
            data=sorted({data_record(one.workload) for one in CAUSES}),
        output:
            records=[
                layout.profile_record(STUDY, "{machine}", workload, "{env}")
                for workload in WORKLOADS
            ],
            traces=[
                directory(layout.traces_folder(STUDY, "{machine}", workload, "{env}"))
                for workload in WORKLOADS
            ],
        log:
            f"results/logs/{STUDY}/{{machine}}/profile/{{env}}.log",
        priority: 60
        retries: 0
        group:
            group_of("run_profile")
        threads: CORES
        resources:
            **on_machine("run_profile"),
        params:
            **on_node("run_profile"),
            kept=kept,
            study=study_json("profile"),
            code=code_of_jobs("profile"),
            jobs=lambda wildcards, output: jobs_options(output.records),
            images=subpath(input.images, parent=True),
        message:
            "profiled launch in {wildcards.env}, of each workload" + ON_MACHINE
        shell:
            ON
            + "python -m tare profiles --study {params.study:q} --env {wildcards.env:q} --images {params.images:q}"
            " {params.jobs} 2> {log:q}"


use rule run_rounds as run_profile_of_stack with:
    input:
        images=lambda wildcards: layout.image_record(
            Path(there(STACK_IMAGES, wildcards)), "host", arm_of(wildcards)
        ),
        data=dataset_record,
    output:
        record=layout.profile_record("{study}", "{machine}", "{workload}", "host.{arm}"),
        traces=directory(
            layout.traces_folder("{study}", "{machine}", "{workload}", "host.{arm}")
        ),
    log:
        "results/logs/{study}/{machine}/profile/{workload}/host.{arm}.log",
    priority: 20
    resources:
        **on_machine("run_profile_of_stack"),
    params:
        **on_node("run_profile_of_stack"),
        kind="profile",
        study=study_json("profile"),
        code=code_of("profile"),
        options=lambda wildcards: f"--env host --arm {arm_of(wildcards).name}",
        images=STACK_IMAGES,
    message:
        "{wildcards.workload}: profiled launch in host.{wildcards.arm}" + ON_MACHINE


rule measure_network:
    input:
        images=collect(form("{env}"), env=GROUPED_IN, allow_missing=True),
    output:
        record=layout.of_machine(Path(RESULTS), AT, layout.NETWORK_FILE),
    log:
        f"results/logs/{STUDY}/{AT}/network.log",
    priority: 60
    retries: 0
    group:
        group_of("measure_network")
    threads: CORES
    resources:
        **on_machine("measure_network"),
    params:
        **on_node("measure_network"),
        kept=kept,
        study=study_json("network"),
        code=closure.code_sha256(
            "network", None, GROUPED_IN, [], [stack_framework(STACK)]
        ),
        images=STACK_IMAGES,
    message:
        "measure the network of instances that train together: a stream, all-reduce by size"
        + ON_MACHINE
    shell:
        ON
        + "python -m tare network --study {params.study:q} --images {params.images:q} --out {output.record:q} 2> {log:q}"


use rule run_rounds as measure_pipeline with:
    input:
        images=form("host"),
        data=dataset_record,
    output:
        record=layout.pipeline_record("{study}", "{machine}", "{workload}"),
    log:
        "results/logs/{study}/{machine}/pipeline/{workload}.log",
    priority: 60
    group:
        group_of("measure_pipeline")
    resources:
        **on_machine("measure_pipeline"),
    params:
        **on_node("measure_pipeline"),
        kept=kept,
        kind="pipeline",
        study=study_json("pipeline"),
        code=code_of("pipeline"),
        options="",
        images=subpath(input.images, parent=True),
    message:
        "{wildcards.workload}: the input pipeline alone, on the host" + ON_MACHINE
