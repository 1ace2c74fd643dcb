# Measures of a run, per query.


rule score:
    input:
        unpack(stages.inputs("score")),
    output:
        "results/{dataset}/score/{key}/stage.json",
    log:
        "results/{dataset}/score/{key}/log.txt",
    conda:
        "../../envs/data.yaml"
    params:
        args=stages.args("score"),
    threads: 1
    resources:
        how=stages.how("score"),
    shell:
        "python -m tandem score {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
