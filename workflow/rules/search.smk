# Dense retrieval and re-ranking. What shards (shards.smk) have encoded or scored is taken over here.


rule encode:
    input:
        unpack(stages.inputs("embeddings")),
        shards=lambda wildcards: plan.hosted.shards("embeddings", wildcards.key),
    output:
        "results/{dataset}/embeddings/{key}/stage.json",
    log:
        "results/{dataset}/embeddings/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("embeddings"),
    threads: cores
    resources:
        how=stages.how("embeddings"),
        **plan.hosted.devices("embeddings"),
    shell:
        "python -m tandem embeddings {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule retrieve:
    input:
        unpack(stages.inputs("retrieve")),
        shards=lambda wildcards: plan.hosted.shards("retrieve", wildcards.key),
    output:
        "results/{dataset}/retrieve/{key}/stage.json",
    log:
        "results/{dataset}/retrieve/{key}/log.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("retrieve"),
    threads: cores
    resources:
        how=stages.how("retrieve"),
        **plan.hosted.devices("retrieve"),
    shell:
        "python -m tandem retrieve {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule rerank:
    input:
        unpack(stages.inputs("rerank")),
        shards=lambda wildcards: plan.hosted.shards("rerank", wildcards.key),
    output:
        "results/{dataset}/rerank/{key}/stage.json",
    log:
        "results/{dataset}/rerank/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("rerank"),
    threads: cores
    retries: 2
    resources:
        how=stages.how("rerank"),
        **plan.hosted.devices("rerank"),
    shell:
        "python -m tandem rerank {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
