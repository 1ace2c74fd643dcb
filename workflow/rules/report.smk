# Tables and the page: views with plain names, made from manifests only. What a table shows is its plan: layout, bands and
# the scores of its rows. They are made, and stay, on the machine that runs Snakemake; object storage has a copy.

report: "../report/workflow.rst"


if IN_STORAGE:

    # A second later, since storage tells times in whole seconds: the copy would look older than what it is a copy of.
    rule stored_view:
        localrule: True
        input:
            local(f"{VIEWS}/{{view}}"),
        output:
            f"{VIEWS}/{{view}}",
        log:
            local(f"{VIEWS}/{{view}}.stored.log"),
        wildcard_constraints:
            view=view_pattern(),
        conda:
            DATA
        shell:
            "sleep 1 && cp {input:q} {output:q} 2> {log:q}"



rule table:
    localrule: True
    input:
        plan=lambda wildcards: plan_file(
            f"{VIEWS}/tables/{wildcards.table}.plan", plan.tables.to_json(wildcards.table) + "\n"
        ),
        scores=lambda wildcards: behind(plan.tables.score_manifests(wildcards.table)),
    output:
        local(multiext(f"{VIEWS}/tables/{{table}}", csv=".csv", md=".md", tex=".tex", json=".json")),
        report(
            local(f"{VIEWS}/tables/{{table}}.html"),
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
        plan=local(f"{VIEWS}/tables/{{table}}.plan"),
    log:
        local(f"{VIEWS}/tables/{{table}}.log"),
    conda:
        DATA
    shell:
        f"{UNPACK}"
        "python -m tandem table --plan {input.plan:q} --out {output.csv:q} 2>&1 | tee {log:q} && cp {input.plan:q} {output.plan:q}"


rule fidelity:
    localrule: True
    input:
        lambda wildcards: behind(manifests(planned(plan.fidelity))),
    output:
        csv=local(f"{VIEWS}/fidelity.csv"),
        html=report(local(f"{VIEWS}/fidelity.html"), caption="../report/fidelity.rst", category="Training"),
    log:
        local(f"{VIEWS}/fidelity.log"),
    conda:
        DATA
    params:
        rows=lambda wildcards: json.dumps(planned(plan.fidelity)),
    shell:
        f"{UNPACK}"
        "python -m tandem fidelity --rows {params.rows:q} --out {output.csv:q} 2>&1 | tee {log:q}"


rule report:
    localrule: True
    input:
        tables=lambda wildcards: local(planned(plan.tables.files)),
        sweeps=lambda wildcards: local(planned(plan.sweep_files)),
        added=lambda wildcards: behind(added_to_report()),
        validations=lambda wildcards: behind(manifests(shown_validations())),
        scores=lambda wildcards: behind(scores_in_report()) if IN_STORAGE else [],
    output:
        report(local(f"{VIEWS}/report.html"), caption="../report/report.rst", category="Report"),
    log:
        local(f"{VIEWS}/report.log"),
    conda:
        DATA
    params:
        rows=json.dumps(plan.tables.systems()),
        validations=lambda wildcards: json.dumps(shown_validations()),
        sweeps=lambda wildcards: finished_sweeps(),
        added=lambda wildcards: json.dumps({name: part.value for name, part in planned(plan.report_parts).items()}),
    shell:
        f"{UNPACK}"
        "python -m tandem report --tables {input.tables:q} --rows {params.rows:q} --added {params.added:q}"
        " --validations {params.validations:q} --sweeps {params.sweeps:q} --out {output:q} 2>&1 | tee {log:q}"
