# Training lists drawn from a run, denoised by a cross-encoder where the recipe says so; and a teacher's scores of them.


rule candidates:
    input:
        unpack(stages.inputs("candidates")),
        shards=lambda wildcards: plan.hosted.shards("candidates", wildcards.key),
    output:
        "results/{dataset}/candidates/{key}/stage.json",
    log:
        "results/{dataset}/candidates/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("candidates"),
    threads: cores
    resources:
        how=stages.how("candidates"),
        **plan.hosted.devices("candidates"),
    shell:
        "python -m tandem candidates {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule teacher:
    input:
        unpack(stages.inputs("teacher")),
        shards=lambda wildcards: plan.hosted.shards("teacher", wildcards.key),
    output:
        "results/{dataset}/teacher/{key}/stage.json",
    log:
        "results/{dataset}/teacher/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("teacher"),
    threads: cores
    retries: 2
    resources:
        how=stages.how("teacher"),
        **plan.hosted.devices("teacher"),
    shell:
        "python -m tandem teacher {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
