# The sparse side: Lucene's index and BM25's runs.


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
