# Indexes of passages' vectors: trained once, filled by shards, put together; and what is found by them.

from contextlib import suppress


def index_threads(wildcards):
    """A graph is grown by one thread, so that it comes out the same; a job of a shard each grows the others' parts."""
    return 1 if stages.find("index", wildcards.key).params["type"].startswith("hnsw") else cores


# Planned at once where it can be: a job that runs on another machine looks its stage up by key.
with suppress(UserError):
    plan.tradeoffs()

# One job on the machine's GPUs, where they are asked for.
INDEX_GPU = plan.config["execution"]["devices"] if plan.config["execution"]["index_gpu"] != "none" else 0


rule index_train:
    input:
        unpack(stages.inputs("index")),
    output:
        temp("results/{dataset}/index/{key}/shards/trained.json"),
    log:
        "results/{dataset}/index/{key}/shards/trained.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("index"),
    threads: cores
    resources:
        how=stages.how("index"),
        gpu=INDEX_GPU,
    shell:
        "python -m tandem index-train {params.args} {resources.how} --run.workers {threads}"
        " --run.shard 0 --run.shards 1 --out {output:q} 2>&1 | tee {log:q}"


rule index_shard:
    input:
        unpack(stages.inputs("index")),
        trained="results/{dataset}/index/{key}/shards/trained.json",
    output:
        temp("results/{dataset}/index/{key}/shards/{shard}-of-{shards}.json"),
    log:
        "results/{dataset}/index/{key}/shards/{shard}-of-{shards}.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("index"),
    threads: index_threads
    retries: 2
    resources:
        how=stages.how("index"),
        gpu=INDEX_GPU,
    shell:
        "python -m tandem index-shard {params.args} {resources.how} --run.workers {threads}"
        " --run.shard {wildcards.shard} --run.shards {wildcards.shards} --out {output:q} 2>&1 | tee {log:q}"


rule index:
    input:
        unpack(stages.inputs("index")),
        shards=lambda wildcards: plan.hosted.shards("index", wildcards.key),
    output:
        "results/{dataset}/index/{key}/stage.json",
    log:
        "results/{dataset}/index/{key}/log.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("index"),
    threads: index_threads
    retries: 2
    resources:
        how=stages.how("index"),
        gpu=INDEX_GPU,
    shell:
        "python -m tandem index {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule ann:
    input:
        unpack(stages.inputs("ann")),
    output:
        "results/{dataset}/ann/{key}/stage.json",
    log:
        "results/{dataset}/ann/{key}/log.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("ann"),
    threads: cores
    resources:
        how=stages.how("ann"),
        gpu=INDEX_GPU,
    shell:
        "python -m tandem ann {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule tradeoffs:
    input:
        unpack(stages.inputs("tradeoffs")),
    output:
        "results/{dataset}/tradeoffs/{key}/stage.json",
    log:
        "results/{dataset}/tradeoffs/{key}/log.txt",
    conda:
        "../../envs/search.yaml"
    params:
        args=stages.args("tradeoffs"),
    threads: everything  # times are measured: nothing else may run
    resources:
        how=stages.how("tradeoffs"),
        gpu=INDEX_GPU,
    shell:
        "python -m tandem tradeoffs {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule index_tradeoffs:
    localrule: True
    input:
        lambda wildcards: planned(plan.tradeoffs).manifest,
    output:
        "results/tables/index_tradeoffs.csv",
        "results/tables/index_tradeoffs.md",
        report("results/tables/index_tradeoffs.html", caption="../report/tradeoffs.rst", category="Search"),
    log:
        "results/tables/index_tradeoffs.log",
    conda:
        "../../envs/data.yaml"
    shell:
        "python -m tandem index-tradeoffs --stage {input[0]:q} --out {output[0]:q} 2>&1 | tee {log:q}"
