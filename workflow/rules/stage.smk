# How a stage runs: one body for all of them. What differs between kinds is their declaration (workflow/tandem/stages/).
# The kind is a wildcard that each rule's output pins down: "results/{dataset}/{kind,retrieve}/{key}/stage.json".

# `-P`: libraries that import `statistics` do not get a file statistics.py of the working folder.
STAGE = "{resources.start}python -P -m tandem {wildcards.kind} {params.args} {resources.how} --run.workers {threads} --out {output.manifest:q} 2>&1 | tee {log:q}"
# Commands before and after it if results are in object storage. What is finished here but not stored is packed as it is.
UNPACK = "python -P -m tandem unpack {input:q} 2>> {log:q} && "
FINISHED = "test -f results/{wildcards.dataset:q}/{wildcards.kind:q}/{wildcards.key:q}/stage.json || "
PACK = " && python -P -m tandem pack results/{wildcards.dataset:q}/{wildcards.kind:q}/{wildcards.key:q} --out {output:q}"
if IN_STORAGE:
    OUT = "--out results/{wildcards.dataset:q}/{wildcards.kind:q}/{wildcards.key:q}/stage.json"
    STAGE, _, LOG = STAGE.replace("--out {output.manifest:q}", OUT).partition(" 2>&1")
    STAGE = f"( {UNPACK}( {FINISHED}{STAGE} ){PACK} ) 2>&1{LOG.replace('tee', 'tee -a')}"  # keeps the log of UNPACK
else:
    UNPACK = ""


rule stage:
    input:
        unpack(stage_inputs),
        shards=shards,
    output:
        manifest=manifest("stage"),  # no stage is of this kind: the rules below name theirs
    log:
        local("results/{dataset}/{kind}/{key}/log.txt"),
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
