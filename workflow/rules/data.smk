# A collection, the starting encoder, and the token ids of the one under the tokenizer of the other.


rule dataset:
    input:
        unpack(stages.inputs("dataset")),
    output:
        "results/{dataset}/dataset/{key}/stage.json",
    log:
        "results/{dataset}/dataset/{key}/log.txt",
    conda:
        "../../envs/data.yaml"
    params:
        args=stages.args("dataset"),
    threads: cores
    resources:
        how=stages.how("dataset"),
    shell:
        "python -m tandem dataset {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule encoder:
    input:
        unpack(stages.inputs("encoder")),
    output:
        "results/{dataset}/encoder/{key}/stage.json",
    log:
        "results/{dataset}/encoder/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("encoder"),
    threads: 1
    resources:
        how=stages.how("encoder"),
    shell:
        "python -m tandem encoder {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule tokens:
    input:
        unpack(stages.inputs("tokens")),
    output:
        "results/{dataset}/tokens/{key}/stage.json",
    log:
        "results/{dataset}/tokens/{key}/log.txt",
    conda:
        "../../envs/models.yaml"
    params:
        args=stages.args("tokens"),
    threads: cores
    resources:
        how=stages.how("tokens"),
    shell:
        "python -m tandem tokens {params.args} {resources.how} --run.workers {threads} --out {output:q} 2>&1 | tee {log:q}"


rule datasets:
    localrule: True
    input:
        [],
    run:
        # Printed, not kept: what is on this machine may change at any time.
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(plan.catalogue, file)
            file.flush()
            shell("python -m tandem datasets --datasets {file.name:q}")
