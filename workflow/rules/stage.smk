# How a stage runs: one body for all of them. What differs between kinds is their declaration (workflow/tandem/stages/).
# The kind is a wildcard that each rule's output pins down: "results/{dataset}/{kind,retrieve}/{key}/stage.json".

STAGE = "{resources.start}python -m tandem {wildcards.kind} {params.args} {resources.how} --run.workers {threads} --out {output[0]:q} 2>&1 | tee {log:q}"


def manifest(kind):
    """The manifest of a kind's artifacts: an artifact is complete once it exists."""
    return f"results/{{dataset}}/{{kind,{kind}}}/{{key}}/stage.json"


def planned_stage(wildcards):
    """The stage behind a job, which finds the secrets of its URLs in the environment: no command line has them."""
    stage = stages.find(wildcards.kind, wildcards.key)
    os.environ.update(stage.secrets)
    return stage


def shards(wildcards):
    """The jobs that share a stage's work before it runs itself."""
    return plan.placement.shards(wildcards.kind, wildcards.key)


def shard_inputs(wildcards):
    """Inputs of a shard: the stage's, and what was trained for all shards of an index."""
    trained = {"trained": f"results/{wildcards.dataset}/{wildcards.kind}/{wildcards.key}/shards/trained.json"}
    return planned_stage(wildcards).inputs | (trained if KINDS[wildcards.kind].train else {})


def environment(wildcards):
    """The conda environment of a kind."""
    return f"{ROOT}/envs/{KINDS[wildcards.kind].env}.yaml"


def stage_threads(wildcards):
    """Heavy stages take all cores; what is timed runs with nothing beside it."""
    kind = KINDS[wildcards.kind]
    if kind.takes_one_thread(planned_stage(wildcards)):
        return 1
    return {"all": cores, "exclusive": everything}[kind.threads]


def gpus(wildcards):
    """GPUs of a job on one node."""
    return plan.placement.gpus(wildcards.kind, wildcards.key)


rule stage:
    input:
        unpack(lambda wildcards: planned_stage(wildcards).inputs),
        shards=shards,
    output:
        manifest("stage"),  # no stage is of this kind: the rules below name theirs
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
