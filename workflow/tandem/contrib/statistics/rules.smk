# The papers' tables of datasets: printed | counted | verdict, for the collections that are on this machine.
rule statistics_table:
    localrule: True
    input:
        layout=lambda wildcards: local(str(plan.view("statistics").layouts[wildcards.table])),
        printed=local(f"{ROOT}/config/statistics/printed.csv"),
        datasets=lambda wildcards: [
            tracked(stage.manifest) for stage in plan.view("statistics").counted(wildcards.table).stages.values()
        ],
    output:
        local(multiext(f"{VIEWS}/statistics/{{table}}", csv=".csv", md=".md", html=".html")),
    log:
        local(f"{VIEWS}/statistics/{{table}}.log"),
    conda:
        DATA
    params:
        artifacts=lambda wildcards: json.dumps(
            {name: stage.folder for name, stage in plan.view("statistics").counted(wildcards.table).stages.items()}
        ),
        presence=lambda wildcards: json.dumps(plan.view("statistics").counted(wildcards.table).absent),
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem statistics --layout {input.layout:q} --artifacts {params.artifacts:q}"
        " --presence {params.presence:q} --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q}"
