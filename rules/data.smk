rule fetch_data:
    output:
        record=layout.data_record("{dataset}{choice}"),
    log:
        "results/logs/data/{dataset}{choice}.log",
    priority: 100
    retries: 0  # it asks its sources again by itself; a set that is refused stays as it is
    localrule: True
    params:
        choice=lambda wildcards: chosen_data(wildcards)[0],
        broken=lambda wildcards: chosen_data(wildcards)[1],
        recipe=dataset_recipe,
    message:
        "fetch and verify the data set {wildcards.dataset}{wildcards.choice}"
    shell:
        "python -m tare fetch --dataset {wildcards.dataset:q} --choice {params.choice:q}"
        " --broken-images {params.broken:q}"
        " --out {output.record:q} 2> {log:q}"
