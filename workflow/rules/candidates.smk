# Training lists drawn from a run, denoised by a cross-encoder where the recipe says so.


rule candidates:
    input:
        unpack(stages.inputs("candidates")),
    output:
        "results/{dataset}/candidates/{key}/stage.json",
    log:
        "results/{dataset}/candidates/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("candidates"),
    threads: workflow.cores
    resources:
        how=stages.how("candidates"),
    shell:
        "python -m tandem candidates {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
