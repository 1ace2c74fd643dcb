# Functions that the rules share. Lint wants them apart from rules (`snakemake --lint`).


def planned(question, *names):
    """Return the plan's answer. A mistake ends the run here: after an exception Snakemake would print places in files."""
    try:
        return question(*names)
    except UserError as error:
        sys.exit(str(error))


def manifest(kind):
    """Return the manifest of a kind's artifacts, in object storage their archive: an artifact is complete once it exists."""
    folder = f"results/{{dataset}}/{{kind,{kind}}}/{{key}}"
    return archive_of(folder) if IN_STORAGE else f"{folder}/{MANIFEST}"


def tracked(manifest):
    """Return what Snakemake tracks of an artifact: its manifest, in object storage its archive.

    All archives of one name have the same content, whenever they were stored: several machines may have made them.
    """
    return ancient(archive_of(Path(manifest).parent)) if IN_STORAGE else manifest


def behind(manifests):
    """Return the artifacts that a view shows; in object storage also those behind them that tables and pages read."""
    if not IN_STORAGE:
        return manifests
    shown = [stages.find(*Path(manifest).parts[-3:-1]) for manifest in manifests]
    return [tracked(stage.manifest) for stage in read_by_views(shown)]


def wanted(files):
    """Return the files of a target; views are on this machine, and also copied to object storage if results are there."""
    views = [file for file in files if Path(file).name != MANIFEST]
    artifacts = [tracked(file) for file in files if Path(file).name == MANIFEST]
    return [*map(local, views), *(views if IN_STORAGE else ()), *artifacts]


def find_run(system, split=None):
    """Return what Snakemake tracks of a system's run, for rules of another Snakefile: the manifest next to run.trec.

    `tandem.find_run("bm25")` is on the reported split, unless `split` names another. The call also plans the run.
    """
    return tracked(planned(plan.planner.run, system, split or plan.split, "find_run").manifest)


def find_model(name):
    """Return what Snakemake tracks of a model, for rules of another Snakefile: the manifest next to its weights."""
    return tracked(planned(plan.planner.model, name, "find_model").manifest)


def planned_stage(wildcards):
    """Return the stage of a job, and put the secrets of its URLs into the environment: no command line has them."""
    stage = stages.find(wildcards.kind, wildcards.key)
    os.environ.update(stage.secrets)
    return stage


def stage_inputs(wildcards):
    """Return what Snakemake tracks of a stage's inputs, by role; in object storage also what the stage reads behind them."""
    stage = planned_stage(wildcards)
    tracked_inputs = {role: tracked(manifest) for role, manifest in stage.inputs.items()}
    if IN_STORAGE:
        tracked_inputs["behind"] = [tracked(it.manifest) for it in read_behind_inputs(stage)]
    return tracked_inputs


def state_before(wildcards):
    """Return the state from which a checkpoint's training continues."""
    folders = plan.placement.state(wildcards.key)
    return list(map(archive_of, folders)) if IN_STORAGE else folders


def shards(wildcards):
    """Return the jobs that share a stage's work before the stage itself runs."""
    return plan.placement.shards(wildcards.kind, wildcards.key)


def shard_inputs(wildcards):
    """Return the inputs of a shard: those of its stage, and what was trained for all shards of an index."""
    trained = {"trained": f"results/{wildcards.dataset}/{wildcards.kind}/{wildcards.key}/shards/trained.json"}
    return stage_inputs(wildcards) | (trained if KINDS[wildcards.kind].train else {})


def environment(wildcards):
    """Return the conda environment of a kind."""
    return f"{ROOT}/envs/{KINDS[wildcards.kind].env}.yaml"


def stage_threads(wildcards):
    """Return the threads of a stage: heavy stages take all cores, and timed stages run without any other job."""
    kind = KINDS[wildcards.kind]
    if kind.takes_one_thread(planned_stage(wildcards)):
        return 1
    return {"all": cores, "exclusive": everything}[kind.threads]


def gpus(wildcards):
    """Return the GPUs of a job on one node."""
    return plan.placement.gpus(wildcards.kind, wildcards.key)


def plan_file(used, text):
    """Return a plan as a file that no other planning changes; `used` is the plan from which the view was made.

    If both plans are the same, the file's time is older than anything, else it is new. So the view follows the
    configuration even if Snakemake's record of inputs and params is lost.
    """
    old, digest = Path(used), hashlib.sha256(text.encode()).hexdigest()[:10]
    path = Path(".snakemake/tandem", digest, used)
    if not path.is_file():
        write_text(path, text)
    same = old.is_file() and old.read_text(encoding="utf-8") == text
    os.utime(path, (0, 0) if same else None)
    return local(str(path))


def added_to_report():
    """Return the manifests of what packages add to the report, as far as the report waits for them."""
    return [stage.manifest for part in planned(plan.report_parts).values() for stage in part.stages]


def scores_in_report():
    """Return the manifests of the scores of the report's tables."""
    return [stage.manifest for stage in plan.tables.requested_scores()]


def print_about(command, option, value, log):
    """Run a command that reads a value from a temporary file, which is not kept: a configuration may hold secrets."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(value, file)
        file.flush()
        shell("python -P -m tandem {command:q} {option:q} {file.name:q} 2>&1 | tee {log:q}")
