# Sweeps: the same systems at every point of a grid. The points are a file of their own, since a thousand of them do not
# fit into a command line; its params are the points, so that the table follows the configuration.


localrules:
    sweep_points,
    sweep,


rule sweep_points:
    output:
        "results/sweeps/{sweep}.points",
    params:
        points=lambda wildcards: plan.swept.made[wildcards.sweep].to_json(),
    run:
        Path(output[0]).write_text(params.points + "\n", encoding="utf-8")


rule sweep:
    input:
        points="results/sweeps/{sweep}.points",
        scores=lambda wildcards: plan.swept.made[wildcards.sweep].scores,
    output:
        multiext("results/sweeps/{sweep}", ".csv", ".md", ".json"),
        report(
            "results/sweeps/{sweep}.html",
            caption="../report/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "table and plots"},
        ),
        report(
            "results/sweeps/{sweep}.svg",
            caption="../report/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "plot"},
        ),
    log:
        "results/sweeps/{sweep}.log",
    conda:
        "../../envs/data.yaml"
    shell:
        "python -m tandem sweep --points {input.points:q} --out {output[0]:q} 2>&1 | tee {log:q}"


# `snakemake sweep_lr` for `sweeps: {lr: …}`, `snakemake sweeps` for all of the configuration, and
# `snakemake rocketqav2_figure4` for config/sweeps/rocketqav2_figure4.yaml.
for target, names in plan.swept.targets.items():

    rule:
        name:
            target
        localrule: True
        input:
            lambda wildcards, names=names: planned(plan.swept.files, names),
