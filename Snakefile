# Tandem: a corpus goes in, the papers' tables come out.
#
#     dataset ─► bm25 ─► candidates ─► train (DE | CE) ─► encode ─► retrieve ─► rerank ─► score ─► table / report
#
# The configuration is resolved into stages with content-addressed keys; each rule runs one kind of stage.

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from snakemake.cli import get_argument_parser
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")
# A checkout has the library next to this file; an installation by pip includes this file.
HERE = Path(workflow.current_basedir.get_path_or_uri(secret_free=False))
if (HERE / "workflow/tandem").is_dir():
    sys.path.insert(0, f"{HERE}/workflow")
elif find_spec("tandem") is None:  # a module that Snakemake takes from a repository comes without its library
    sys.exit("tandem is not installed in the environment that runs Snakemake: pip install tandem-retrieval")

from tandem import ROOT
from tandem.extras.import_path import find_library_folder
from tandem.config.merging import gathered, merged, read_yaml
from tandem.config.parsing import with_secrets
from tandem.config.table_layouts import TABLE_FORMATS, TABLE_PARTS
from tandem.errors import UserError
from tandem.extras.archive import archive_of
from tandem.extras.plan import FullPlan
from tandem.extras.running.left_jobs import clear, keep_finished
from tandem.extras.running.storage import check_storage, keep_objects, refuse_manifests
from tandem.plan.context import plans_view
from tandem.plan.graph import read_behind_inputs, read_by_views
from tandem.extras.targets import refuse_repeated_keys
from tandem.extras.view_owners import check_owner, record_owner
from tandem.plan.views import view_pattern, views_folder
from tandem.plugins import find_rules, plugins_behind
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST
from tandem.store.files import write_text


configfile: f"{ROOT}/config/config.yaml"


include: f"{ROOT}/workflow/rules/common.smk"


# Another Snakefile may use these rules as a module (docs/how_to/module.md), with a configuration of its own.
IS_MAIN = workflow.modifier.is_main_snakefile()
if IS_MAIN:
    for file in workflow.overwrite_configfiles:  # refuses repeated keys, of which Snakemake silently takes the last
        planned(read_yaml, Path(file))
    configuration = [Path(file) for file in workflow.overwrite_configfiles]
else:
    configuration = []
    config = merged(planned(gathered, [], ROOT), config)
    if workflow.modifier.path_modifier.replace_prefix("results/") != "results/":
        sys.exit("module: prefix and replace_prefix cannot move results/, which the plan's own paths name; leave them out")
config = planned(with_secrets, config, "--config")  # `tandem run` has put its secrets into the environment
plan = planned(FullPlan, config, ROOT, views_folder(configuration))
stages = plan.stages
VIEWS = plan.views  # tables and the report; those of `--configfile mine.yaml` do not overwrite the default's
# If results are in object storage, an artifact is one object there, its archive, which exists whole or not at all. results/
# then belongs to this machine: artifacts are unpacked into it, computed in it, and packed. So everything that a stage maps,
# locks or resumes from is a local file. Snakemake moves the archives (docs/storage.md).
IN_STORAGE = workflow.storage_settings.default_storage_provider is not None
provider, prefix = workflow.storage_registry.default_storage_provider, workflow.storage_settings.default_storage_prefix

# Unknown and unavailable targets are reported before any rule is asked for its files; a module leaves this to its user.
if workflow.is_main_process and IS_MAIN:
    planned(check_owner, VIEWS, configuration)
    if IN_STORAGE:
        planned(check_storage, provider, prefix, plan.settings.execution)
    keep_finished(Path.cwd())
    arguments = get_argument_parser().parse_known_args(sys.argv[1:])[0]
    planned(refuse_repeated_keys, arguments.config or [])
    flags = [word for word in sys.argv if word.partition("=")[0] in ("--config", "-C")]
    if len(flags) > 1:
        sys.exit("--config stands twice, and Snakemake takes the last one alone; write its words behind one")
    targets = arguments.targets or ["all"]
    if IN_STORAGE:
        planned(refuse_manifests, targets)
    for line in dict.fromkeys(line for target in targets for line in planned(plan.check, target)):
        print(line, file=sys.stderr)
else:
    plan.plan_every_target()
if IN_STORAGE and prefix and not {"--delete-all-output", "--delete-temp-output"} & {*sys.argv}:
    keep_objects(provider, prefix)  # before the rules, which ask the provider for objects

# Jobs run this library in the interpreter that runs Snakemake, unless conda or a container provides one. This prefix of the
# shell replaces Snakemake's, so strict mode must be set again. Python writes compiled modules, whatever the environment
# says: otherwise every job would compile torch again.
library = find_library_folder(same_python=not workflow.deployment_settings.deployment_method)
parts = ["set -euo pipefail", "unset PYTHONDONTWRITEBYTECODE"]
if not workflow.deployment_settings.deployment_method:
    parts.append(f"export PATH={quote(str(Path(sys.executable).parent))}:$PATH")
if library:
    parts.append(f"export PYTHONPATH={quote(str(library))}" + ("" if IS_MAIN else "${PYTHONPATH:+:$PYTHONPATH}"))
shell.prefix("; ".join([*parts, ""]).replace("{", "{{").replace("}", "}}"))

# conda's environments name what we import; for what that needs in turn, torch above all, pip takes the lock file's versions.
if workflow.deployment_settings.deployment_method:
    os.environ.setdefault("PIP_CONSTRAINT", (ROOT / "envs/requirements.lock").as_uri())


# On a cluster the number of cores is not set: the profile sets the threads of each rule.
try:
    everything = workflow.cores
except WorkflowError:
    everything = 1

# Heavy jobs take all cores, unless the configuration lets several run side by side.
cores = plan.settings.execution.threads or everything

DATA = f"{ROOT}/envs/data.yaml"  # the environment of commands that only read artifacts
# Appended to commands that show results: plugins add measures, files of tables and parts of the report. It is a resource of
# rules and not a param, because the location of a plugin changes no result.
WITH_PLUGINS = f"--run.plugins {quote(json.dumps(plan.settings.plugins))}" if plan.settings.plugins else ""
# The plugins that add to tables and the report by now are a param: other sources show results in another way.
SHOWN_BY = [plugin.label for plugin in plugins_behind([*TABLE_FORMATS, *TABLE_PARTS, *plans_view])]
BY_PLUGINS = {"shown_by": SHOWN_BY} if SHOWN_BY else {}


wildcard_constraints:
    dataset=r"[A-Za-z0-9_.-]+",
    key=r"[A-Za-z0-9_.+@-]+-[0-9a-f]{10}",
    table=rf"(?!({'|'.join(plan.tables_of_views())})\.)[A-Za-z0-9_./-]+",
    shard=r"\d+",
    shards=r"\d+",


include: f"{ROOT}/workflow/rules/stage.smk"
include: f"{ROOT}/workflow/rules/chain.smk"
include: f"{ROOT}/workflow/rules/report.smk"
include: f"{ROOT}/workflow/rules/extras.smk"


for rules in find_rules():

    include: rules


# Slurm jobs that exist already belong to a Snakemake that was killed, unless another one runs here.
onstart:
    clear(Path.cwd())
    record_owner(VIEWS, configuration)


# The last line is the failing stage's own message, not that a job did not complete.
onerror:
    from tandem.extras.running.failures import read_failed_words

    if words := read_failed_words(log):
        sys.exit(words)


rule all:
    localrule: True
    default_target: IS_MAIN
    input:
        lambda wildcards: wanted(planned(plan.tables.files)),
        lambda wildcards: wanted(planned(plan.files_of_all)),
        wanted([f"{VIEWS}/report.html"]),
