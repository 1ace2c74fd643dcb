# Smaller stages: a dataset's own lists and released files as runs, answers found in passages, the audits and the analyses.

SMALL = {
    "given": ("data", 1),
    "imported": ("data", 1),
    "average_rank": ("search", cores),
    "match": ("data", cores),
    "noise": ("data", cores),
    "similar_queries": ("models", cores),
    "false_negatives": ("models", cores),
    "relabel": ("data", 1),
    "errors": ("data", 1),
    "dynamics": ("models", cores),
    "hardness": ("models", cores),
}
for kind, (env, threads) in SMALL.items():

    rule:
        name:
            kind
        input:
            unpack(stages.inputs(kind)),
        output:
            "results/{dataset}/" + kind + "/{key}/stage.json",
        log:
            "results/{dataset}/" + kind + "/{key}/log.txt",
        conda:
            f"../../envs/{env}.yaml"
        params:
            kind=kind,
            args=stages.args(kind),
        threads: threads
        resources:
            how=stages.how(kind),
            **plan.hosted.devices(kind),
        shell:
            "python -m tandem {params.kind} {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule audits:
    localrule: True
    input:
        parts=lambda wildcards: planned(plan.audits),
    output:
        report("results/audits.html", caption="../report/audits.rst", category="Audits"),
        "results/tables/audits.csv",
    log:
        "results/audits.log",
    conda:
        "../../envs/data.yaml"
    params:
        parts=lambda wildcards: json.dumps(planned(plan.audits)),
    shell:
        "python -m tandem audits --parts {params.parts:q} --out {output[0]:q} --table {output[1]:q} 2>&1 | tee {log:q}"
