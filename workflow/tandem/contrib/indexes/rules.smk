# Recall, latency and size of indexes.
rule index_tradeoffs:
    localrule: True
    input:
        lambda wildcards: behind([planned(plan.view("tradeoffs").stage).manifest]),
    output:
        local(multiext(f"{VIEWS}/tables/index_tradeoffs", csv=".csv", md=".md")),
        report(local(f"{VIEWS}/tables/index_tradeoffs.html"), caption="assets/tradeoffs.rst", category="Search"),
    log:
        local(f"{VIEWS}/tables/index_tradeoffs.log"),
    conda:
        DATA
    params:
        stage=lambda wildcards: planned(plan.view("tradeoffs").stage).manifest,
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem index-tradeoffs --stage {params.stage:q} --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q}"
