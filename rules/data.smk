rule fetch_data:
    output:
        record="results/data/{dataset}.json",
    log:
        "results/logs/data/{dataset}.log",
    priority: 100
    retries: 0  # it asks its sources again by itself; a set that is refused stays as it is
    params:
        choice=lookup(dpath="data/{dataset}", within=config, default="auto"),
        broken=lookup(dpath="data/broken_images", within=config, default="stop"),
        recipe=dataset_recipe,
    message:
        "fetch and verify the data set {wildcards.dataset}"
    shell:
        "python -m tare fetch --dataset {wildcards.dataset:q} --choice {params.choice:q}"
        " --broken-images {params.broken:q}"
        " --out {output.record:q} 2> {log:q}"
