# Reference campaigns that were recorded elsewhere and are kept in results/reference: their tables, made anew here.
# The recorded folders themselves are never written.
# They are of the checkout, as the configuration is, also where the workflow runs in another folder.
REFERENCES = sorted(
    path.parent.name
    for path in Path(checkout_file(layout.REFERENCES)).glob(f"*/{layout.REFERENCE}")
)
REFERENCE_TABLES = [
    "metrics",
    "verdicts",
    "operators",
    "families",
    "samples",
    "fingerprints",
    "kernels",
    "device_samples",
    "ledger",
    "steps",
    "claims",
]


rule reference_tables:
    input:
        record=checkout_file(layout.reference_record("{reference}")),
    output:
        metrics=layout.reference_table("{reference}", "metrics.parquet"),
        tables=collect(
            layout.reference_table("{{reference}}", "{table}.csv"),
            table=REFERENCE_TABLES,
        ),
    log:
        "results/logs/reference-tables/{reference}.log",
    localrule: True
    params:
        code=EXTRACTION,
        recorded=subpath(input.record, parent=True),
        folder=subpath(output.metrics, parent=True),
    message:
        "the tables of the reference campaign {wildcards.reference}"
    shell:
        "python -m tare reference-tables {params.recorded:q} --keep-going --out {params.folder:q} 2> {log:q}"
