# An encoder of one's own: a tokenizer and first weights for a corpus, and what the corpus itself teaches an encoder.


rule vocabulary:
    input:
        unpack(stages.inputs("vocabulary")),
    output:
        "results/{dataset}/vocabulary/{key}/stage.json",
    log:
        "results/{dataset}/vocabulary/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("vocabulary"),
    threads: cores
    resources:
        how=stages.how("vocabulary"),
    shell:
        "python -m tandem vocabulary {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule pretrain:
    input:
        unpack(stages.inputs("pretrain")),
    output:
        "results/{dataset}/pretrain/{key}/stage.json",
    log:
        "results/{dataset}/pretrain/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("pretrain"),
    threads: cores
    retries: 2
    resources:
        how=stages.how("pretrain"),
        **plan.hosted.devices("pretrain"),
    shell:
        "{resources.start}python -m tandem pretrain {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
