# Shards: jobs that share the work of one stage. Passages are encoded in blocks of a fixed size, searched in ranges of them
# whose bests are merged, and pairs are scored into a store that every stage looks them up in, so that the number of
# shards changes no result. The stage itself does whatever is missing.

SHARDS = {
    "embeddings_shard": "embeddings",
    "retrieve_shard": "retrieve",
    "candidates_shard": "candidates",
    "teacher_shard": "teacher",
    "rerank_shard": "rerank",
    "rerank_windows_shard": "rerank_windows",
}
for name, kind in SHARDS.items():

    rule:
        name:
            name
        input:
            unpack(stages.inputs(kind)),
        output:
            temp("results/{dataset}/" + kind + "/{key}/shards/{shard}-of-{shards}.json"),
        log:
            "results/{dataset}/" + kind + "/{key}/shards/{shard}-of-{shards}.txt",
        conda:
            "../../envs/search.yaml" if kind == "retrieve" else "../../envs/models.yaml"
        params:
            command=f"{kind}-shard",
            args=stages.args(kind),
        threads: cores
        retries: 2
        resources:
            how=stages.how(kind),
            **plan.hosted.devices(kind),
        shell:
            "python -m tandem {params.command} {params.args} {resources.how} --run.workers {threads}"
            " --run.shard {wildcards.shard} --run.shards {wildcards.shards} --out {output:q} 2>&1 | tee {log:q}"
