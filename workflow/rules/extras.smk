# What the papers' tables do not need: sweeps, estimates.


rule datasets:
    localrule: True
    log:
        local(f"{VIEWS}/datasets.log"),
    run:
        # Printed anew every time: what this machine holds may change.
        print_about("datasets", "--datasets", plan.catalogue, log)


rule estimate:
    localrule: True
    log:
        local(f"{VIEWS}/estimate.log"),
    run:
        # Printed anew every time: it follows from the configuration and from the artifacts that exist.
        print_about("estimate", "--config", config, log)


# Sweeps: the same systems at every point of a grid. The points are a file of their own, since a thousand of them do not
# fit into a command line.
rule sweep:
    localrule: True
    input:
        points=lambda wildcards: plan_file(
            f"{VIEWS}/sweeps/{wildcards.sweep}.points", plan.sweeps[wildcards.sweep].to_json() + "\n"
        ),
        scores=lambda wildcards: behind(plan.sweeps[wildcards.sweep].scores),
    output:
        local(multiext(f"{VIEWS}/sweeps/{{sweep}}", csv=".csv", md=".md", json=".json")),
        report(
            local(f"{VIEWS}/sweeps/{{sweep}}.html"),
            caption="../report/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "table and plots"},
        ),
        report(
            local(f"{VIEWS}/sweeps/{{sweep}}.svg"),
            caption="../report/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "plot"},
        ),
        points=local(f"{VIEWS}/sweeps/{{sweep}}.points"),
    log:
        local(f"{VIEWS}/sweeps/{{sweep}}.log"),
    conda:
        DATA
    shell:
        f"{UNPACK}"
        "python -m tandem sweep --points {input.points:q} --out {output.csv:q} 2>&1 | tee {log:q} && cp {input.points:q} {output.points:q}"


# Targets by name. `snakemake rocketqav2` makes all of a paper that can be made here, `rocketqav2_table4` what
# config/papers/rocketqav2/table4.yaml lays out, `rocketqav2_figure4` the sweep of config/sweeps/rocketqav2_figure4.yaml,
# `sweep_lr` that of `sweeps: {lr: …}`, and `sweeps` all of the configuration's.
targets = {
    **{name: files for view in plan.added_views.values() for name, files in view.files().items()},
    **{paper: partial(plan.of_paper, paper) for paper in plan.tables.papers},
    **{name: partial(plan.tables.files, table) for name, table in plan.tables.targets.items()},
    **{name: partial(plan.sweeps.files, names) for name, names in plan.sweeps.targets.items()},
}

for name, files in targets.items():

    rule:
        name:
            name
        localrule: True
        input:
            lambda wildcards, files=files: wanted(planned(files)),
