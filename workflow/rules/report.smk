# Tables and the page: views with plain names, made from manifests only. What a table shows is its plan: layout, bands and
# the scores of its rows.


rule table:
    localrule: True
    input:
        plan=lambda wildcards: plan_file(
            f"{VIEWS}/tables/{wildcards.table}.plan", plan.tables.to_json(wildcards.table) + "\n"
        ),
        scores=lambda wildcards: plan.tables.scores(wildcards.table),
    output:
        multiext(f"{VIEWS}/tables/{{table}}", csv=".csv", md=".md", tex=".tex", json=".json"),
        report(
            f"{VIEWS}/tables/{{table}}.html",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
        plan=f"{VIEWS}/tables/{{table}}.plan",
    log:
        f"{VIEWS}/tables/{{table}}.log",
    conda:
        DATA
    shell:
        "python -m tandem table --plan {input.plan:q} --out {output.csv:q} 2>&1 | tee {log:q} && cp {input.plan:q} {output.plan:q}"


rule fidelity:
    localrule: True
    input:
        lambda wildcards: manifests(planned(plan.fidelity)),
    output:
        csv=f"{VIEWS}/fidelity.csv",
        html=report(f"{VIEWS}/fidelity.html", caption="../report/fidelity.rst", category="Training"),
    log:
        f"{VIEWS}/fidelity.log",
    conda:
        DATA
    params:
        rows=lambda wildcards: json.dumps(planned(plan.fidelity)),
    shell:
        "python -m tandem fidelity --rows {params.rows:q} --out {output.csv:q} 2>&1 | tee {log:q}"


rule report:
    localrule: True
    input:
        tables=lambda wildcards: planned(plan.tables.files),
        sweeps=lambda wildcards: planned(plan.sweep_files),
        audits=lambda wildcards: planned(plan.audits) if plan.settings.audits.in_report else [],
        validations=lambda wildcards: manifests(shown_validations()),
    output:
        report(f"{VIEWS}/report.html", caption="../report/report.rst", category="Report"),
    log:
        f"{VIEWS}/report.log",
    conda:
        DATA
    params:
        rows=json.dumps(plan.tables.systems()),
        validations=lambda wildcards: json.dumps(shown_validations()),
        sweeps=lambda wildcards: finished_sweeps(),
        analyses=lambda wildcards: finished_analyses(),
    shell:
        "python -m tandem report --tables {input.tables:q} --rows {params.rows:q} --audits {input.audits:q}"
        " --validations {params.validations:q} --sweeps {params.sweeps:q} --analyses {params.analyses:q} --out {output:q} 2>&1 | tee {log:q}"
