# Sweeps: the same systems at every point of a grid. The points are a file of their own, since a thousand of them do not
# fit into a command line.
rule sweep:
    localrule: True
    input:
        points=lambda wildcards: plan_file(
            f"{VIEWS}/sweeps/{wildcards.sweep}.points", plan.view("sweeps").planned[wildcards.sweep].to_json() + "\n"
        ),
        scores=lambda wildcards: behind(plan.view("sweeps").planned[wildcards.sweep].scores),
    output:
        local(multiext(f"{VIEWS}/sweeps/{{sweep}}", csv=".csv", md=".md", json=".json")),
        report(
            local(f"{VIEWS}/sweeps/{{sweep}}.html"),
            caption="assets/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "table and plots"},
        ),
        report(
            local(f"{VIEWS}/sweeps/{{sweep}}.svg"),
            caption="assets/sweep.rst",
            category="Sweeps",
            labels={"sweep": "{sweep}", "as": "plot"},
        ),
        points=local(f"{VIEWS}/sweeps/{{sweep}}.points"),
    log:
        local(f"{VIEWS}/sweeps/{{sweep}}.log"),
    wildcard_constraints:
        sweep=r"[A-Za-z0-9_-]+",
    conda:
        DATA
    resources:
        with_plugins=WITH_PLUGINS,
    shell:
        f"{UNPACK}"
        "python -P -m tandem sweep --points {input.points:q} --out {output.csv:q} {resources.with_plugins} 2>&1 | tee {log:q} && cp {input.points:q} {output.points:q}"
