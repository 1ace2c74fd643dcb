# What the papers' tables do not need: lists of data sets, estimates; and targets by name.


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
        print_about("estimate", "--whole", config, log)


# Targets by name. `snakemake rocketqav2` makes everything of a paper that is available here, `rocketqav2_table4` the table of
# config/papers/rocketqav2/table4.yaml, `rocketqav2_figure4` the sweep of config/sweeps/rocketqav2_figure4.yaml, `sweep_lr`
# that of `sweeps: {lr: …}`, and `sweeps` all sweeps of the configuration.
targets = {
    **{name: files for view in plan.added_views.values() for name, files in view.files().items()},
    **{paper: partial(plan.of_paper, paper) for paper in plan.tables.papers},
    **{name: partial(plan.tables.files, table) for name, table in plan.tables.targets.items()},
}

for name, files in targets.items():

    rule:
        name:
            name
        localrule: True
        input:
            lambda wildcards, files=files: wanted(planned(files)),
