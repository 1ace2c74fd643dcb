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
    threads: cores
    retries: 2
    resources:
        how=stages.how("model"),
        **plan.hosted.devices("model"),
    shell:
        "{resources.start}python -m tandem model {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


# The training in stages: the state that the next one goes on from stands beside the artifact and is removed after it.
rule checkpoint:
    input:
        unpack(stages.inputs("checkpoint")),
        state=lambda wildcards: plan.hosted.state(wildcards.key),
    output:
        "results/{dataset}/checkpoint/{key}/stage.json",
        temp(directory("results/{dataset}/checkpoint/{key}/state")),
    log:
        "results/{dataset}/checkpoint/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("checkpoint"),
    threads: cores
    retries: 2
    resources:
        how=stages.how("checkpoint"),
        **plan.hosted.devices("checkpoint"),
    shell:
        "{resources.start}python -m tandem checkpoint {params.args} {resources.how} --run.workers {threads} --out {output[0]:q} 2>&1 | tee {log:q}"
