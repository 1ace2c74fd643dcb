# Functions that the rules share. Lint wants them apart from rules (`snakemake --lint`).


def planned(question, *names):
    """The plan's answer. A mistake ends here, and its line is the last: after an exception Snakemake prints places in files."""
    try:
        return question(*names)
    except UserError as error:
        sys.exit(str(error))


def manifest(kind):
    """The manifest of a kind's artifacts: an artifact is complete once it exists. In object storage their archive."""
    folder = f"results/{{dataset}}/{{kind,{kind}}}/{{key}}"
    return archive_of(folder) if IN_STORAGE else f"{folder}/{MANIFEST}"


def tracked(manifest):
    """What Snakemake tracks of an artifact: its manifest, in object storage its archive.

    Of one name all archives hold the same, whenever they were stored: several machines may have made it.
    """
    return ancient(archive_of(Path(manifest).parent)) if IN_STORAGE else manifest


def behind(manifests):
    """The artifacts that a view is of; in object storage also those behind them that tables and pages read."""
    if not IN_STORAGE:
        return manifests
    shown = [stages.find(*Path(manifest).parts[-3:-1]) for manifest in manifests]
    return [tracked(stage.manifest) for stage in read_by_views(shown)]


def wanted(files):
    """The files of a target: views on this machine, where results are in object storage a copy there, too."""
    views = [file for file in files if Path(file).name != MANIFEST]
    artifacts = [tracked(file) for file in files if Path(file).name == MANIFEST]
    return [*map(local, views), *(views if IN_STORAGE else ()), *artifacts]


def find_run(system, split=None):
    """What Snakemake tracks of a system's run, for rules of another Snakefile: the manifest beside run.trec.

    `tandem.find_run("bm25")`: on the reported split unless one is named. Asking for it plans it.
    """
    return tracked(planned(plan.planner.run, system, split or plan.split, "find_run").manifest)


def find_model(name):
    """What Snakemake tracks of a model, for rules of another Snakefile: the manifest beside its weights."""
    return tracked(planned(plan.planner.model, name, "find_model").manifest)


def planned_stage(wildcards):
    """The stage behind a job, which finds the secrets of its URLs in the environment: no command line has them."""
    stage = stages.find(wildcards.kind, wildcards.key)
    os.environ.update(stage.secrets)
    return stage


def stage_inputs(wildcards):
    """What Snakemake tracks of a stage's inputs, by role; in object storage also what the stage reads behind them."""
    stage = planned_stage(wildcards)
    tracked_inputs = {role: tracked(manifest) for role, manifest in stage.inputs.items()}
    if IN_STORAGE:
        tracked_inputs["behind"] = [tracked(it.manifest) for it in read_behind_inputs(stage)]
    return tracked_inputs


def state_before(wildcards):
    """The state that a checkpoint's training goes on from."""
    folders = plan.placement.state(wildcards.key)
    return list(map(archive_of, folders)) if IN_STORAGE else folders


def shards(wildcards):
    """The jobs that share a stage's work before it runs itself."""
    return plan.placement.shards(wildcards.kind, wildcards.key)


def shard_inputs(wildcards):
    """Inputs of a shard: the stage's, and what was trained for all shards of an index."""
    trained = {"trained": f"results/{wildcards.dataset}/{wildcards.kind}/{wildcards.key}/shards/trained.json"}
    return stage_inputs(wildcards) | (trained if KINDS[wildcards.kind].train else {})


def environment(wildcards):
    """The conda environment of a kind."""
    return f"{ROOT}/envs/{KINDS[wildcards.kind].env}.yaml"


def stage_threads(wildcards):
    """Heavy stages take all cores; what is timed runs with nothing beside it."""
    kind = KINDS[wildcards.kind]
    if kind.takes_one_thread(planned_stage(wildcards)):
        return 1
    return {"all": cores, "exclusive": everything}[kind.threads]


def gpus(wildcards):
    """GPUs of a job on one node."""
    return plan.placement.gpus(wildcards.kind, wildcards.key)


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
    return local(str(path))


def added_to_report():
    """The manifests of what packages add to the report, as far as it waits for them."""
    return [stage.manifest for part in planned(plan.report_parts).values() for stage in part.stages]


def scores_in_report():
    """The manifests of the scores of the report's tables."""
    return [stage.manifest for stage in plan.tables.requested_scores()]


def print_about(command, option, value, log):
    """Run a command whose option takes a value as a file, which is not kept: a configuration may hold secrets."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(value, file)
        file.flush()
        shell("python -P -m tandem {command:q} {option:q} {file.name:q} 2>&1 | tee {log:q}")
