# Several runs made into one, and the weights or constants with which that is best on a split with labels.

for kind in ("fuse", "tune_fusion"):

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
            "../../envs/data.yaml"
        params:
            command=kind,
            args=stages.args(kind),
        threads: 1
        resources:
            how=stages.how(kind),
        shell:
            "python -m tandem {params.command} {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
