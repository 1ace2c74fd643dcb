# The papers' tables of datasets: printed | counted | verdict, for the collections that are on this machine.


rule statistics_table:
    localrule: True
    input:
        layout=lambda wildcards: str(plan.statistics[wildcards.table]),
        printed=f"{workflow.basedir}/config/statistics/printed.csv",
        datasets=lambda wildcards: [stage.manifest for stage in plan.counted(wildcards.table).stages.values()],
    output:
        multiext("results/statistics/{table}", ".csv", ".md", ".html"),
    log:
        "results/statistics/{table}.log",
    conda:
        "../../envs/data.yaml"
    params:
        artifacts=lambda wildcards: json.dumps(
            {name: stage.folder for name, stage in plan.counted(wildcards.table).stages.items()}
        ),
        presence=lambda wildcards: json.dumps(plan.counted(wildcards.table).absent),
    shell:
        "python -m tandem statistics --layout {input.layout:q} --artifacts {params.artifacts:q}"
        " --presence {params.presence:q} --out {output[0]:q} 2>&1 | tee {log:q}"


rule statistics:
    localrule: True
    input:
        expand("results/statistics/{table}.csv", table=plan.statistics),
