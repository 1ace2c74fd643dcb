# Long documents: runs over windows made into runs over documents, and windows of a run's documents by cross-encoders.


rule aggregate:
    input:
        unpack(stages.inputs("aggregate")),
    output:
        "results/{dataset}/aggregate/{key}/stage.json",
    log:
        "results/{dataset}/aggregate/{key}/log.txt",
    conda:
        "../../envs/data.yaml"
    params:
        args=stages.args("aggregate"),
    threads: 1
    resources:
        how=stages.how("aggregate"),
    shell:
        "python -m tandem aggregate {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule rerank_windows:
    input:
        unpack(stages.inputs("rerank_windows")),
        shards=lambda wildcards: plan.hosted.shards("rerank_windows", wildcards.key),
    output:
        "results/{dataset}/rerank_windows/{key}/stage.json",
    log:
        "results/{dataset}/rerank_windows/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("rerank_windows"),
    threads: cores
    retries: 2
    resources:
        how=stages.how("rerank_windows"),
        **plan.hosted.devices("rerank_windows"),
    shell:
        "python -m tandem rerank_windows {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
