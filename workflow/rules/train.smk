# Dual encoders, cross-encoders, and both at once. Checkpoints stand beside the output, undeclared: Snakemake deletes the
# outputs of a job that died, and the next try goes on from the last checkpoint.


rule train:
    input:
        unpack(stages.inputs("model")),
    output:
        "results/{dataset}/model/{key}/stage.json",
    log:
        "results/{dataset}/model/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("model"),
    threads: workflow.cores
    retries: 2
    resources:
        how=stages.how("model"),
    shell:
        "python -m tandem model {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
