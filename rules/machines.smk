# Of a study that names several machines: their results side by side.
import json


rule compare_machines:
    input:
        decisions=collect(f"{RESULTS}/tables/decisions.csv", machine=MACHINES),
        machines=collect(
            layout.of_machine(Path(RESULTS), AT, layout.MACHINE_FILE), machine=MACHINES
        ),
    output:
        table=f"{layout.results_folder(STUDY)}/tables/machines.csv",
        pages=directory(f"{layout.results_folder(STUDY)}/report"),
    log:
        f"results/logs/{STUDY}/compare_machines.log",
    localrule: True
    params:
        study=json.dumps(STUDIED.to_json(), sort_keys=True),
        machines=MACHINES,
        code=DRAWING,
        results=layout.results_folder(STUDY),
    message:
        "compare the machines"
    shell:
        "python -m tare compare-machines --study {params.study:q} --machines {params.machines:q}"
        " --results {params.results:q} --out {output.table:q} --pages {output.pages:q} 2> {log:q}"
