# How a stage runs: one body for all of them. What differs between kinds is their declaration (workflow/tandem/stages/).
# The kind is a wildcard that each rule's output pins down: "results/{dataset}/{kind,retrieve}/{key}/stage.json".

STAGE = "{resources.start}python -m tandem {wildcards.kind} {params.args} {resources.how} --run.workers {threads} --out {output.manifest:q} 2>&1 | tee {log:q}"


rule stage:
    input:
        unpack(lambda wildcards: planned_stage(wildcards).inputs),
        shards=shards,
    output:
        manifest=manifest("stage"),  # no stage is of this kind: the rules below name theirs
    log:
        "results/{dataset}/{kind}/{key}/log.txt",
    conda:
        environment
    params:
        args=lambda wildcards: planned_stage(wildcards).args,
    threads: stage_threads
    resources:
        how=lambda wildcards: planned_stage(wildcards).how,
        gpu=gpus,
        start="",
    shell:
        STAGE
