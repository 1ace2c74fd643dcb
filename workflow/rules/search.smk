# Dense retrieval and re-ranking. Passages are encoded in blocks of a fixed size; a shard is a job that takes some of
# the blocks, so that the number of shards changes no result.


rule encode_shard:
    input:
        unpack(stages.inputs("embeddings")),
    output:
        temp("results/{dataset}/embeddings/{key}/shards/{shard}-of-{shards}.json"),
    log:
        "results/{dataset}/embeddings/{key}/shards/{shard}-of-{shards}.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("embeddings"),
    threads: workflow.cores
    retries: 2
    resources:
        how=stages.how("embeddings"),
    shell:
        "python -m tandem encode-shard {params.args} {resources.how} --run.workers {threads}"
        " --run.shard {wildcards.shard} --run.shards {wildcards.shards} --out {output:q} 2>&1 | tee {log:q}"


rule encode:
    input:
        unpack(stages.inputs("embeddings")),
        shards=lambda wildcards: plan.shards(wildcards.key),
    output:
        "results/{dataset}/embeddings/{key}/stage.json",
    log:
        "results/{dataset}/embeddings/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("embeddings"),
    threads: workflow.cores
    resources:
        how=stages.how("embeddings"),
    shell:
        "python -m tandem embeddings {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule retrieve:
    input:
        unpack(stages.inputs("retrieve")),
    output:
        "results/{dataset}/retrieve/{key}/stage.json",
    log:
        "results/{dataset}/retrieve/{key}/log.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("retrieve"),
    threads: workflow.cores
    resources:
        how=stages.how("retrieve"),
    shell:
        "python -m tandem retrieve {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule rerank:
    input:
        unpack(stages.inputs("rerank")),
    output:
        "results/{dataset}/rerank/{key}/stage.json",
    log:
        "results/{dataset}/rerank/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("rerank"),
    threads: workflow.cores
    retries: 2
    resources:
        how=stages.how("rerank"),
    shell:
        "python -m tandem rerank {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
