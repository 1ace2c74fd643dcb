# Tables and the page: views with plain names, made from manifests only. A table's plan determines what it shows: layout,
# bands and the scores of its rows. Views are made, and stay, on the machine that runs Snakemake; object storage has a copy.

report: "../report/workflow.rst"


if IN_STORAGE:

    # The copy is made a second later: storage has times in whole seconds, by which it would look older than its original.
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
        local(multiext(f"{VIEWS}/tables/{{table}}", csv=".csv", md=".md", json=".json")),
        *[
            report(
                local(f"{VIEWS}/tables/{{table}}{ending}"),
                caption="../report/table.rst",
                category="Tables",
                labels={"table": "{table}"},
            ) if ending == ".html" else local(f"{VIEWS}/tables/{{table}}{ending}")
            for ending in TABLE_FORMATS
        ],
        plan=local(f"{VIEWS}/tables/{{table}}.plan"),
    log:
        local(f"{VIEWS}/tables/{{table}}.log"),
    conda:
        DATA
    params:
        **BY_PLUGINS,
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem table --plan {input.plan:q} --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q} && cp {input.plan:q} {output.plan:q}"


rule report:
    localrule: True
    input:
        tables=lambda wildcards: local(planned(plan.tables.files)),
        shown=lambda wildcards: local(planned(plan.files_of_all)),
        added=lambda wildcards: behind(added_to_report()),
        scores=lambda wildcards: behind(scores_in_report()) if IN_STORAGE else [],
    output:
        report(local(f"{VIEWS}/report.html"), caption="../report/report.rst", category="Report"),
    log:
        local(f"{VIEWS}/report.log"),
    conda:
        DATA
    params:
        tables=lambda wildcards: planned(plan.tables.files),  # a table that is left out is newer than nothing
        # as a function: Snakemake would take braces in a system's name for wildcards
        rows=lambda wildcards: json.dumps(plan.tables.systems()),
        added=lambda wildcards: json.dumps({name: part.value for name, part in planned(plan.report_parts).items()}),
        **BY_PLUGINS,
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem report --tables {params.tables:q} --rows {params.rows:q} --added {params.added:q}"
        " --out {output:q} {resources.with_plugins} 2>&1 | tee {log:q}"
