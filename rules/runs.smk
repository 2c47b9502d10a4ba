# Whatever launches something. Measuring rules take every core, so that nothing else of ours runs beside them.


rule probe_environment:
    input:
        adapter="envs/{env}.py",
    output:
        record="results/probe/{env}.json",
    log:
        "results/logs/probe/{env}.log",
    threads: workflow.cores
    params:
        programs=programs_seen,
    message:
        "try a launch in {wildcards.env}"
    shell:
        "python -m tare probe --env {wildcards.env:q} --out {output.record:q} 2> {log:q}"


rule describe_machine:
    output:
        record="<results>/machine.json",
    log:
        "<results>/logs/machine.log",
    message:
        "describe this machine"
    shell:
        "python -m tare machine --out {output.record:q} 2> {log:q}"


rule measure_ceilings:
    input:
        code=[*INSIDE, "tare/worker/ceilings.py", "tare/machine/cpu_peak.py"],
        devices="config/devices.yaml",
        image=f"results/images/{STACK}/host.json",
    output:
        record="<results>/ceilings.json",
    log:
        "<results>/logs/ceilings.log",
    threads: workflow.cores
    params:
        study=study_json("ceilings"),
        images=subpath(input.image, parent=True),
    message:
        "measure the ceilings of this machine: copy, triad, matrix products"
    shell:
        "python -m tare ceilings --study {params.study:q} --images {params.images:q}"
        " --out {output.record:q} 2> {log:q}"


rule run_rounds:
    input:
        code=INSIDE_ROUNDS,
        workload="workloads/{workload}.py",
        adapters=campaign_adapters,
        images=campaign_images,
        data=dataset_record,
    output:
        sealed="results/campaigns/{study}/{workload}/rounds.{environments}{arm}/sealed.json",
    log:
        "results/logs/{study}/rounds/{workload}/{environments}{arm}.log",
    retries: 0
    threads: workflow.cores
    params:
        study=study_json("rounds"),
        environments=campaign_environments,
        arm=campaign_arm,
        images=f"results/images/{STACK}",
    message:
        "{wildcards.workload}: whole runs in random order, {wildcards.environments}{wildcards.arm}"
    shell:
        "python -m tare rounds --study {params.study:q} --workload {wildcards.workload:q} {params.arm}"
        " --environments {params.environments:q} --images {params.images:q} --data {input.data:q}"
        " --out {output.sealed:q} 2> {log:q}"


rule run_turns:
    input:
        code=INSIDE_TURNS,
        workload="workloads/{workload}.py",
        adapters=campaign_adapters,
        images=campaign_images,
        data=dataset_record,
    output:
        sealed="results/campaigns/{study}/{workload}/turns.{environments}{arm}/sealed.json",
    log:
        "results/logs/{study}/turns/{workload}/{environments}{arm}.log",
    retries: 0
    threads: workflow.cores
    params:
        study=study_json("turns"),
        environments=campaign_environments,
        arm=campaign_arm,
        images=f"results/images/{STACK}",
    message:
        "{wildcards.workload}: training steps, taking turns, {wildcards.environments}{wildcards.arm}"
    shell:
        "python -m tare turns --study {params.study:q} --workload {wildcards.workload:q} {params.arm}"
        " --environments {params.environments:q} --images {params.images:q} --data {input.data:q}"
        " --out {output.sealed:q} 2> {log:q}"


rule run_causes:
    input:
        code=INSIDE_CAUSES,
        workload="workloads/{workload}.py",
        adapters=campaign_adapters,
        images=campaign_images,
        data=dataset_record,
    output:
        sealed="results/campaigns/{study}/{workload}/causes.{environments}/sealed.json",
    log:
        "results/logs/{study}/causes/{workload}/{environments}.log",
    retries: 0
    threads: workflow.cores
    params:
        study=study_json("causes"),
        environments=campaign_environments,
        images=f"results/images/{STACK}",
    message:
        "{wildcards.workload}: kernels, operators and files, {wildcards.environments}"
    shell:
        "python -m tare causes --study {params.study:q} --workload {wildcards.workload:q}"
        " --environments {params.environments:q} --images {params.images:q} --data {input.data:q}"
        " --out {output.sealed:q} 2> {log:q}"


rule run_sweep:
    input:
        code=INSIDE_ROUNDS,
        workload="workloads/{workload}.py",
        adapter="envs/host.py",
        image=f"results/images/{STACK}/host.json",
        data=dataset_record,
    output:
        sealed="results/campaigns/{study}/{workload}/sweep/sealed.json",
    log:
        "results/logs/{study}/sweep/{workload}.log",
    retries: 0
    threads: workflow.cores
    params:
        study=study_json("sweep"),
        images=subpath(input.image, parent=True),
    message:
        "{wildcards.workload}: batch sweep on the host"
    shell:
        "python -m tare sweep --study {params.study:q} --workload {wildcards.workload:q}"
        " --images {params.images:q} --data {input.data:q} --out {output.sealed:q} 2> {log:q}"


rule run_profile:
    input:
        code=INSIDE_PROFILE,
        workload="workloads/{workload}.py",
        adapter="envs/{env}.py",
        image=f"results/images/{STACK}/{{env}}.json",
        data=dataset_record,
    output:
        record="results/profiles/{study}/{workload}/{env}/profile.json",
    log:
        "results/logs/{study}/profile/{workload}/{env}.log",
    retries: 0
    threads: workflow.cores
    params:
        study=study_json("profile"),
        images=subpath(input.image, parent=True),
    message:
        "{wildcards.workload}: profiled launch in {wildcards.env}"
    shell:
        "python -m tare profile --study {params.study:q} --workload {wildcards.workload:q}"
        " --env {wildcards.env:q} --images {params.images:q} --data {input.data:q}"
        " --out {output.record:q} 2> {log:q}"
