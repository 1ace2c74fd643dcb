# The page of the audits, and their findings as a table.
rule audits:
    localrule: True
    input:
        lambda wildcards: behind(planned(plan.view("audits").manifests)),
    output:
        page=report(local(f"{VIEWS}/audits.html"), caption="assets/audits.rst", category="Audits"),
        table=local(f"{VIEWS}/tables/audits.csv"),
    log:
        local(f"{VIEWS}/audits.log"),
    conda:
        DATA
    params:
        parts=lambda wildcards: planned(plan.view("audits").manifests),
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem audits --parts {params.parts:q} --out {output.page:q} --table {output.table:q} {resources.with_plugins} 2>&1 | tee {log:q}"
