# Notebooks, executed on this run's artifacts, and the table that the annotators' sheet of one of them makes.


rule notebook:
    localrule: True
    input:
        notebook=f"{workflow.basedir}/notebooks/{{notebook}}.ipynb",
        artifact=lambda wildcards: planned(plan.analyses.stage, wildcards.notebook).manifest,
    output:
        "results/notebooks/{notebook}-{dataset}.ipynb",
        report(
            "results/notebooks/{notebook}-{dataset}.html",
            caption="../report/notebook.rst",
            category="Notebooks",
            labels={"notebook": "{notebook}", "dataset": "{dataset}"},
        ),
    log:
        "results/notebooks/{notebook}-{dataset}.log",
    conda:
        "../../envs/notebooks.yaml"
    params:
        artifact=lambda wildcards: planned(plan.analyses.stage, wildcards.notebook).folder,
    shell:
        "python -m tandem notebook --notebook {input.notebook:q} --artifact {params.artifact:q} --out {output[0]:q} 2>&1 | tee {log:q}"


rule notebooks:
    localrule: True
    input:
        lambda wildcards: planned(plan.analyses.files),


rule error_table:
    localrule: True
    input:
        errors=lambda wildcards: planned(plan.analyses.stage, "error_analysis").manifest,
        printed=f"{workflow.basedir}/config/papers/printed.csv",
        sheet=lambda wildcards: planned(plan.analyses.sheet) or [],
    output:
        multiext("results/tables/dureader_retrieval/table10", ".csv", ".md", ".tex", ".html"),
    log:
        "results/tables/dureader_retrieval/table10.log",
    conda:
        "../../envs/data.yaml"
    params:
        errors=lambda wildcards: planned(plan.analyses.stage, "error_analysis").folder,
        sheet=lambda wildcards, input: f"--sheet {quote(str(input.sheet))}" if input.sheet else "",
    shell:
        "python -m tandem error-table --errors {params.errors:q} --printed {input.printed:q} {params.sheet}"
        " --out {output[0]:q} 2>&1 | tee {log:q}"


rule dureader_retrieval_table10:
    localrule: True
    input:
        "results/tables/dureader_retrieval/table10.csv",
