# The sparse side: indexes of Lucene and bm25s, the choice of k1 and b, BM25's runs.


rule lucene:
    input:
        unpack(stages.inputs("lucene")),
    output:
        "results/{dataset}/lucene/{key}/stage.json",
    log:
        "results/{dataset}/lucene/{key}/log.txt",
    conda:
        "../../envs/lexical.yaml"
    params:
        args=stages.args("lucene"),
    threads: cores
    resources:
        how=stages.how("lucene"),
    shell:
        "python -m tandem lucene {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule bm25:
    input:
        unpack(stages.inputs("bm25")),
    output:
        "results/{dataset}/bm25/{key}/stage.json",
    log:
        "results/{dataset}/bm25/{key}/log.txt",
    conda:
        "../../envs/lexical.yaml"
    params:
        args=stages.args("bm25"),
    threads: cores
    resources:
        how=stages.how("bm25"),
    shell:
        "python -m tandem bm25 {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule bm25s:
    input:
        unpack(stages.inputs("bm25s")),
    output:
        "results/{dataset}/bm25s/{key}/stage.json",
    log:
        "results/{dataset}/bm25s/{key}/log.txt",
    conda:
        "../../envs/lexical.yaml"
    params:
        args=stages.args("bm25s"),
    threads: 1
    resources:
        how=stages.how("bm25s"),
    shell:
        "python -m tandem bm25s {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule tune_bm25:
    input:
        unpack(stages.inputs("tune_bm25")),
    output:
        "results/{dataset}/tune_bm25/{key}/stage.json",
    log:
        "results/{dataset}/tune_bm25/{key}/log.txt",
    conda:
        "../../envs/lexical.yaml"
    params:
        args=stages.args("tune_bm25"),
    threads: cores
    resources:
        how=stages.how("tune_bm25"),
    shell:
        "python -m tandem tune_bm25 {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"
