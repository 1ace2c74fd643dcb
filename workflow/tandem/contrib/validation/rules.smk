# Validations of checkpoints on the reduced corpus beside those on the full one.
rule fidelity:
    localrule: True
    input:
        lambda wildcards: behind(
            [stage.manifest for it in planned(plan.view("fidelity").compared) for stage in it.stages]
        ),
    output:
        csv=local(f"{VIEWS}/fidelity.csv"),
        html=report(local(f"{VIEWS}/fidelity.html"), caption="assets/fidelity.rst", category="Training"),
    log:
        local(f"{VIEWS}/fidelity.log"),
    conda:
        DATA
    params:
        rows=lambda wildcards: json.dumps([it.row for it in planned(plan.view("fidelity").compared)]),
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem fidelity --rows {params.rows:q} --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q}"
