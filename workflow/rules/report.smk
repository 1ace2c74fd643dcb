# Tables and the page: views with plain names, made from manifests only. What a table shows is its plan: layout, bands and
# the scores of its rows.


def plan_file(used, text):
    """A plan as a file that no other planning changes; `used` is the plan that the view was made by.

    The file is older than anything if these are the same, else new: the view follows the configuration even where
    Snakemake's record of inputs and params is lost.
    """
    old, digest = Path(used), hashlib.sha256(text.encode()).hexdigest()[:10]
    path = Path(".snakemake/tandem", digest, used)
    if not path.is_file():
        write_text(path, text)
    same = old.is_file() and old.read_text(encoding="utf-8") == text
    os.utime(path, (0, 0) if same else None)
    return str(path)


rule table:
    localrule: True
    input:
        plan=lambda wildcards: plan_file(
            f"{VIEWS}/tables/{wildcards.table}.plan", plan.tables.to_json(wildcards.table) + "\n"
        ),
        scores=lambda wildcards: plan.tables.scores(wildcards.table),
    output:
        multiext(f"{VIEWS}/tables/{{table}}", ".csv", ".md", ".tex", ".json"),
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
        "python -m tandem table --plan {input.plan:q} --out {output[0]:q} 2>&1 | tee {log:q} && cp {input.plan:q} {output.plan:q}"


def shown_validations():
    """Checkpoints and their validations that the report shows."""
    return planned(plan.validations, plan.settings.validation.fidelity)


def manifests(rows):
    """What must be there before validations can be read."""
    return [f"{row[key]}/stage.json" for row in rows for key in ("checkpoint", "reduced", "full") if row[key]]


rule fidelity:
    localrule: True
    input:
        lambda wildcards: manifests(planned(plan.fidelity)),
    output:
        f"{VIEWS}/fidelity.csv",
        report(f"{VIEWS}/fidelity.html", caption="../report/fidelity.rst", category="Training"),
    log:
        f"{VIEWS}/fidelity.log",
    conda:
        DATA
    params:
        rows=lambda wildcards: json.dumps(planned(plan.fidelity)),
    shell:
        "python -m tandem fidelity --rows {params.rows:q} --out {output[0]:q} 2>&1 | tee {log:q}"


def finished_sweeps():
    """The sweeps that the report shows: the configuration's, and others whose files are of the points planned now."""
    files = list(planned(plan.sweep_files))
    for path in sorted(Path(f"{VIEWS}/sweeps").glob("*.points")):
        name, table = path.stem, path.with_suffix(".json")
        if name not in plan.sweeps.requested and name in plan.sweeps and table.is_file():
            if path.read_text(encoding="utf-8") == plan.sweeps[name].to_json() + "\n":
                files.append(str(table))
    return files


def finished_analyses():
    """The manifest of the error analysis, if it is finished: the report does not wait for it."""
    try:
        analysis = plan.analyses.stage("error_analysis").manifest
    except UserError:
        return []
    return [analysis] if Path(analysis).is_file() else []


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
