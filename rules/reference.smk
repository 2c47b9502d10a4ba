# Reference campaigns that were recorded elsewhere, whose archives are in results/reference: tables, made anew here.
# They are of the checkout, as the configuration is, also where the workflow runs in another folder.
from tare.model.journals.references import name_of, references

REFERENCES = {
    name_of(place): place
    for place in references(Path(checkout_file(layout.REFERENCES)))
}
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
        lambda wildcards: str(
            REFERENCES.get(
                wildcards.reference, layout.REFERENCES / f"{wildcards.reference}.zip"
            )
        ),
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
        folder=subpath(output.metrics, parent=True),
    message:
        "the tables of the reference campaign {wildcards.reference}"
    shell:
        "python -m tare reference-tables {input:q} --keep-going --out {params.folder:q} 2> {log:q}"
