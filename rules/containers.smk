# One hash-locked stack -> one tree -> one OCI image -> each environment's own form. Shared by all studies.
# Everything is cached by content, so that a rule that runs again finds what it made; its record says so.

STACK_FOLDER = layout.IMAGES / "{at}{stack}"


rule build_tree:
    input:
        stack=checkout_file("containers/stacks/{stack}/stack.yaml"),
        files=stack_files,
    output:
        record=layout.stack_record(STACK_FOLDER, "tree"),
    log:
        "results/logs/images/{at}{stack}/tree.log",
    wildcard_constraints:
        stack=r"(?!bound/)[a-z][a-z0-9.-]*",
    priority: 105
    localrule: True
    params:
        variant=variant,
        optional=optional_stack,
        interpreter=stack_interpreter,
    message:
        "build the tree of interpreter and packages of {wildcards.stack}"
    shell:
        "python -m tare build-tree --stack {wildcards.stack:q} --variant {params.variant:q}"
        " {params.optional} --out {output.record:q} 2> {log:q}"


rule build_image:
    input:
        recipe=checkout_file("containers/recipe.yaml"),
        tree=layout.stack_record(STACK_FOLDER, "tree"),
    output:
        record=layout.stack_record(STACK_FOLDER, "oci"),
    log:
        "results/logs/images/{at}{stack}/oci.log",
    wildcard_constraints:
        stack=r"(?!bound/)[a-z][a-z0-9.-]*",
    priority: 105
    localrule: True
    params:
        variant=variant,
        optional=optional_stack,
    message:
        "assemble the image of {wildcards.stack}"
    shell:
        "python -m tare build-image --stack {wildcards.stack:q} --variant {params.variant:q}"
        " {params.optional} --out {output.record:q} 2> {log:q}"


# What is installed already, as it is: of the stack `bound` there is nothing to fetch and no tree to build.


rule bind_stack:
    output:
        tree=layout.stack_record(layout.IMAGES / "{at}bound", "tree"),
        record=layout.stack_record(layout.IMAGES / "{at}bound", "oci"),
    log:
        "results/logs/images/{at}bound/oci.log",
    priority: 100
    params:
        python=os.environ.get("REFERENCE_PYTHON", sys.executable),
        folder=subpath(output.record, parent=True),
    message:
        "bind the framework that is installed on this machine"
    shell:
        "python -m tare bind-stack --python {params.python:q} --environments --out {params.folder:q} 2> {log:q}"


rule derive_image:
    input:
        image=form_source,
        probe=probe_of,
    output:
        record=layout.stack_record(STACK_FOLDER, "{env}"),
    log:
        "results/logs/images/{at}{stack}/{env}.log",
    wildcard_constraints:
        env=rf"(?!(?:oci|tree)\b|host[.]stack-{NOT_MADE_HERE})[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)?",
    priority: 100
    localrule: True
    params:
        code=adapter_code,
    message:
        "turn the image of {wildcards.stack} into the form of {wildcards.env}"
    shell:
        "python -m tare derive-image --stack {wildcards.stack:q} --env {wildcards.env:q}"
        " --image {input.image:q} --probe {input.probe:q} --out {output.record:q} 2> {log:q}"


# A runtime that keeps images in its own store loads them on the node that is measured, from the cache.
if KEPT_ON_NODES:

    rule load_image:
        input:
            image=layout.stack_record(Path(IMAGES, "{stack}"), "oci"),
            probe=layout.probe_record(AT, "{env}"),
        output:
            record=layout.stack_record(Path(IMAGES, "{stack}"), "{env}"),
        log:
            f"results/logs/images/@{AT}/{{stack}}/{{env}}.log",
        wildcard_constraints:
            env="|".join(KEPT_ON_NODES),
        priority: 100
        group:
            group_of("load_image")
        resources:
            **on_machine("load_image"),
        params:
            **on_node("load_image"),
            kept=kept,
            code=adapter_code,
        message:
            "load the image of {wildcards.stack} into {wildcards.env}" + ON_MACHINE
        shell:
            ON
            + "python -m tare derive-image --stack {wildcards.stack:q} --env {wildcards.env:q}"
            " --image {input.image:q} --probe {input.probe:q} --out {output.record:q} 2> {log:q}"


rule derive_arm:
    input:
        recipe=checkout_file("containers/recipe.yaml"),
        image=layout.stack_record(STACK_FOLDER, "oci"),
        probe=probe_of,
    output:
        record=layout.arm_record(STACK_FOLDER, "{arm}", "{env}"),
    log:
        "results/logs/images/{at}{stack}/arms/{arm}/{env}.log",
    wildcard_constraints:
        arm=r"[a-z_]+-[a-z0-9-]+",
    priority: 100
    localrule: True
    params:
        code=adapter_code,
        arm=lambda wildcards, output: layout.read_slug(wildcards.arm).name,
    message:
        "make what {wildcards.env} needs for the arm {wildcards.arm} of {wildcards.stack}"
    shell:
        "python -m tare derive-arm --stack {wildcards.stack:q} --env {wildcards.env:q} --arm {params.arm:q}"
        " --image {input.image:q} --probe {input.probe:q} --out {output.record:q} 2> {log:q}"
