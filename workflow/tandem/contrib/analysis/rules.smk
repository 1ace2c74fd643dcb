# Notebooks, executed on this run's artifacts, and the table that the annotators' sheet of one of them makes.
rule notebook:
    localrule: True
    input:
        notebook=local(f"{ROOT}/notebooks/{{notebook}}.ipynb"),
        artifact=lambda wildcards: behind([planned(plan.view("analysis").stage, wildcards.notebook).manifest]),
    output:
        notebook=local(f"{VIEWS}/notebooks/{{notebook}}-{{dataset}}.ipynb"),
        page=report(
            local(f"{VIEWS}/notebooks/{{notebook}}-{{dataset}}.html"),
            caption="assets/notebook.rst",
            category="Notebooks",
            labels={"notebook": "{notebook}", "dataset": "{dataset}"},
        ),
    log:
        local(f"{VIEWS}/notebooks/{{notebook}}-{{dataset}}.log"),
    conda:
        f"{ROOT}/envs/notebooks.yaml"
    wildcard_constraints:
        notebook="|".join(plan.view("analysis").notebooks),  # names of datasets have hyphens, too
    params:
        artifact=lambda wildcards: planned(plan.view("analysis").stage, wildcards.notebook).folder,
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem notebook --notebook {input.notebook:q} --artifact {params.artifact:q} --out {output.notebook:q} {resources.with_plugins} 2>&1 | tee {log:q}"


rule error_table:
    localrule: True
    input:
        errors=lambda wildcards: behind([planned(plan.view("analysis").errors).manifest]),
        printed=local(f"{ROOT}/config/papers/printed.csv"),
        sheet=lambda wildcards: local(planned(plan.view("analysis").sheet) or []),
    output:
        local(multiext(f"{VIEWS}/tables/dureader_retrieval/table10", csv=".csv", md=".md", tex=".tex", html=".html")),
    log:
        local(f"{VIEWS}/tables/dureader_retrieval/table10.log"),
    conda:
        DATA
    params:
        errors=lambda wildcards: planned(plan.view("analysis").errors).folder,
        # not by way of `input`: Snakemake compares no params that are derived from it, and another sheet may be an old file
        sheet=lambda wildcards: f"--sheet {quote(sheet)}" if (sheet := planned(plan.view("analysis").sheet)) else "",
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem error-table --errors {params.errors:q} --printed {input.printed:q} {params.sheet}"
        " --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q}"
