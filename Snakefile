# Tandem: a corpus goes in, the papers' tables come out.
#
#     dataset ─► bm25 ─► candidates ─► train (DE | CE) ─► encode ─► retrieve ─► rerank ─► score ─► table / report
#
# The configuration is resolved into stages with content-addressed keys; each rule runs one kind of stage.

import json
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")
sys.path.insert(0, f"{workflow.basedir}/workflow")

from tandem.errors import UserError
from tandem.plan import Plan


configfile: f"{workflow.basedir}/config/config.yaml"


try:
    plan = Plan(config, Path(workflow.basedir))
except UserError as error:
    raise WorkflowError(str(error))
stages = plan.stages

# The library of this checkout, wherever the job runs.
shell.prefix(f"export PYTHONPATH={workflow.basedir!r}/workflow; ")


wildcard_constraints:
    dataset=r"[A-Za-z0-9_.-]+",
    key=r"[A-Za-z0-9_.+-]+-[0-9a-f]{10}",
    table=r"[A-Za-z0-9_./-]+",
    shard=r"\d+",
    shards=r"\d+",


include: "workflow/rules/data.smk"
include: "workflow/rules/bm25.smk"
include: "workflow/rules/candidates.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/report.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        expand("results/tables/{table}.csv", table=plan.wanted()),
        "results/report.html",
