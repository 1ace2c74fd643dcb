# The main chain, as the papers draw it: each box of the drawing is a rule.
#
#     dataset ─► bm25 ─► candidates ─► train ─► encode ─► retrieve ─► rerank ─► score ─► table / report


use rule stage as dataset with:
    output: manifest=manifest("dataset")


# The starting encoder, and the collection as token ids under its tokenizer.
use rule stage as encoder with:
    output: manifest=manifest("encoder")


use rule stage as tokens with:
    output: manifest=manifest("tokens")


use rule stage as lucene with:
    output: manifest=manifest("lucene")


use rule stage as bm25 with:
    output: manifest=manifest("bm25")


# Hard negatives: training lists drawn from a run, denoised by a cross-encoder if the recipe has one. A teacher's scores.
use rule stage as candidates with:
    output: manifest=manifest("candidates")


use rule stage as teacher with:
    output: manifest=manifest("teacher")
    retries: 2


# Dual encoders, cross-encoders, and both at once. Checkpoints are next to the output and not declared: Snakemake deletes the
# declared outputs of a job that died, and the next try continues from the last checkpoint.
use rule stage as train with:
    output: manifest=manifest("model")
    retries: 2
    resources:
        how=lambda wildcards: planned_stage(wildcards).how,
        **plan.placement.training(),


STATE = "results/{dataset}/{kind,checkpoint}/{key}/state"


# A training in stages: the state from which the next stage continues is next to the artifact and is removed after it.
use rule stage as checkpoint with:
    input:
        unpack(stage_inputs),
        state=state_before,
    output:
        manifest=manifest("checkpoint"),
        state=temp(archive_of(STATE) if IN_STORAGE else directory(STATE)),
    retries: 2
    resources:
        how=lambda wildcards: planned_stage(wildcards).how,
        **plan.placement.training(),


use rule stage as encode with:
    output: manifest=manifest("embeddings")


use rule stage as retrieve with:
    output: manifest=manifest("retrieve")


use rule stage as rerank with:
    output: manifest=manifest("rerank")
    retries: 2


use rule stage as score with:
    output: manifest=manifest("score")


# An index is trained once on a sample, filled by shards, and put together by its stage.
for kind in KINDS.values():
    if kind.train:

        rule:
            name:
                f"{kind.name}_train"
            input:
                unpack(stage_inputs),
            output:
                temp(f"results/{{dataset}}/{{kind,{kind.name}}}/{{key}}/shards/trained.json"),
            log:
                "results/{dataset}/{kind}/{key}/shards/trained.txt",
            conda:
                environment
            params:
                command=kind.train_command,
                args=lambda wildcards: planned_stage(wildcards).args,
            threads: cores
            resources:
                how=lambda wildcards: planned_stage(wildcards).how,
                gpu=gpus,
            shell:
                "python -P -m tandem {params.command} {params.args} {resources.how} --run.workers {threads}"
                " --run.shard 0 --run.shards 1 --out {output:q} 2>&1 | tee {log:q}"


# Jobs that share the work of one stage. Passages are encoded in blocks of a fixed size. Ranges of these blocks are searched,
# and their best passages are merged. Scores of pairs are written to a store, in which every stage looks them up. So the
# number of shards changes no result. The stage itself computes whatever is missing.
for kind in KINDS.values():
    if kind.shard:

        rule:
            name:
                f"{kind.rule_name}_shard"
            input:
                unpack(shard_inputs),
            output:
                temp(f"results/{{dataset}}/{{kind,{kind.name}}}/{{key}}/shards/{{shard}}-of-{{shards}}.json"),
            log:
                "results/{dataset}/{kind}/{key}/shards/{shard}-of-{shards}.txt",
            conda:
                environment
            params:
                command=kind.shard_command,
                args=lambda wildcards: planned_stage(wildcards).args,
            threads: stage_threads
            retries: kind.shard_retries
            resources:
                how=lambda wildcards: planned_stage(wildcards).how,
                gpu=gpus,
            shell:
                "python -P -m tandem {params.command} {params.args} {resources.how} --run.workers {threads}"
                " --run.shard {wildcards.shard} --run.shards {wildcards.shards} --out {output:q} 2>&1 | tee {log:q}"


# Every other kind of stage: pre-training, indexes, fusion, long documents, audits, analyses, plugins.
for kind in KINDS.values():
    if not rules.has(kind.rule_name):

        rule:
            name:
                kind.name
            input:
                unpack(stage_inputs),
                shards=shards,
            output:
                manifest=manifest(kind.name),
            log:
                local("results/{dataset}/{kind}/{key}/log.txt"),
            conda:
                environment
            params:
                args=lambda wildcards: planned_stage(wildcards).args,
            threads: stage_threads
            retries: kind.retries
            resources:
                how=lambda wildcards: planned_stage(wildcards).how,
                **(plan.placement.training() if kind.ranks else {"gpu": gpus, "start": ""}),
            shell:
                STAGE
