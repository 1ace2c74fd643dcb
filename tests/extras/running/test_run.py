"""`tandem run` without Snakemake: its command line, what follows from events, the time left, the last lines."""

import json
import os
import platform
import pty
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.cli import run as command
from tandem.cluster.threads import count_usable_cores
from tandem.errors import UserError
from tandem.extras.running.command import interrupt_in_background, list_answer_lines, read_request
from tandem.extras.running.failures import explain_failure, read_failed_words
from tandem.extras.running.run_progress import (
    LEAST_PRIOR_SECONDS,
    SECONDS_WITHOUT_ESTIMATE,
    BegunJob,
    Event,
    Forecast,
    ProgressLine,
    Run,
    describe_job,
    format_about,
    list_requested_stages,
)
from tandem.extras.targets import Configuration
from tandem.plan.graph import Stage, Stages
from tandem.report.results import BestSystem, Cell, FilledColumn, FilledRow, Table

MODEL = Stage("model", "toy", "ce_deneg", {"objective": "cross"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing/x.yaml"], "missing/x.yaml: no such file$"),
        (["none/x.yaml"], "none/x.yaml: no such file; `tandem init x --data FOLDER` writes one$"),
        (["mine.yaml", "estimate"], "estimate is a command of its own: tandem estimate"),
        (["mine.yaml", "--config", "depht=3"], "depht is not a known key; did you mean depth?"),
        (["mine.yaml", "--config"], "^--config: allowed: key=value, such as seed=7$"),
        (
            ["--config", "--configfile", "mine.yaml"],
            "^--config --configfile: allowed: key=value, such as seed=7$",
        ),
        (["--configfile"], "^--configfile: allowed: YAML files, such as mine.yaml$"),
        (
            ["--configfile", "--config", "seed=7"],
            "^--configfile --config: allowed: YAML files, such as mine.yaml$",
        ),
        (["--", "--config", "seed=7"], "--config is not allowed after --; write it before --"),
        (["--", "-C", "seed=7"], "-C is not allowed after --; write it before --"),
        (["--", "-Cseed=7"], "-Cseed=7 is not allowed after --; write it before --"),
        (["--", "-n", "-d/tmp"], "-d/tmp is not allowed after --; change to the folder"),
        (
            ["--", "--directory=/tmp"],
            "--directory=/tmp is not allowed after --; change to the folder",
        ),
        (
            ["--configfile", "mine.yaml", "--config", "a=1", "--config", "b=1"],
            "one configuration is run at a time",
        ),
        (["mine.yaml", "rocketqa_steps"], "table rocketqa/steps cannot be made: "),
        (
            ["mine.yaml", "--", "--cores", "0"],
            "^--cores 0: no stage could run; allowed: 1 or more$",
        ),
        (["--", "-n", "-c0"], "^-c0: no stage could run; allowed: 1 or more$"),
        (["--", "--jobs=-1"], "^--jobs=-1: no stage could run; allowed: 1 or more$"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("seed: 1\n")
    Path("none").mkdir()
    with pytest.raises(UserError, match=message):
        command(["run", *words])
    assert not Path("logs").exists()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_manifest_is_named_before_anything_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage = list_requested_stages(Configuration().plan(), ["baseline"])[0]
    Path(stage.folder).mkdir(parents=True)
    Path(stage.manifest).write_text(text)
    with pytest.raises(UserError, match=rf"^{stage.manifest}: .* run its stage again$"):
        command(["run", "baseline"])
    assert not Path("logs").exists()


def test_snakemakes_words_are_targets_cores_flags_and_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    Path("mine.yaml").write_text("")
    request = read_request(["mine.yaml", "baseline", "--config", "seed=7", "--", "--keep-going"])
    cores = str(count_usable_cores())
    expected = [
        "baseline",
        "--cores",
        cores,
        "--keep-going",
        "--configfile",
        "mine.yaml",
        "--config",
        "seed=7",
    ]
    assert request.words == expected
    assert read_request(["--", "-c4"]).words == ["-c4"]
    assert read_request([]).words == ["--cores", cores]
    named = ["--jobscript", "job.sh"]  # no number of jobs
    assert read_request(["--", *named]).words == ["--cores", cores, *named]
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "mycluster")
    assert read_request([]).words == []
    assert request.unlock == "tandem run mine.yaml -- --unlock"
    Path("my own.yaml").write_text("")
    for flag in ("-n", "-np", "-qn", "--dry-run", "--dryrun", "--unlock", "--summary"):
        assert read_request(["--", "--cores", "2", flag]).only_looks
    for flag in ("-k", "-j4", "--notemp", "--rerun-incomplete"):
        assert not read_request(["--", flag]).only_looks
    assert read_request(["my own.yaml"]).unlock == "tandem run 'my own.yaml' -- --unlock"


@pytest.mark.parametrize("content", ["5\n", "cores\n", "- cores\n", ""])
def test_a_profile_that_is_not_a_mapping_names_no_cores(tmp_path, monkeypatch, content):
    """Snakemake refuses it in its own words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    profile = tmp_path / "profiles/default/config.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(content)
    assert "--cores" in read_request(["--"]).words


def test_cores_of_a_workflow_profile_are_not_replaced(tmp_path, monkeypatch):
    """Snakemake looks for one by its path or below profiles/, unnamed by `default`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    all_cores = ["--cores", str(count_usable_cores())]
    for name, text in {"small": "cores: 2", "calm": "retries: 1", "queue": "jobs: 9"}.items():
        folder = tmp_path / "profiles" / name
        folder.mkdir(parents=True)
        (folder / "config.v8+.yaml").write_text(text)
    file = tmp_path / "mine.yaml"
    file.write_text("cores: 3")
    for flags in (["--workflow-profile", "small"], ["--workflow-profile=queue"]):
        assert read_request(["--", *flags]).words == flags
    assert read_request(["--", "--workflow-profile", str(file)]).words[0] == "--workflow-profile"
    for name in ("calm", "none"):
        flags = ["--workflow-profile", name]
        assert read_request(["--", *flags]).words == [*all_cores, *flags]
    assert read_request([]).words == all_cores
    (tmp_path / "profiles/small").rename(tmp_path / "profiles/default")
    assert read_request([]).words == []


def reported(*events: dict) -> Run:
    """A run after some events, as the logger plugin writes them."""
    run = Run()
    for event in events:
        run.take(Event.model_validate_json(json.dumps(event)))
    return run


def begins(number: int, rule: str, kind: str, key: str, log: str = "log.txt") -> dict:
    wildcards = {"dataset": "toy", "kind": kind, "key": key}
    return {
        "event": "job_info",
        "jobid": number,
        "rule_name": rule,
        "wildcards": wildcards,
        "log": [log],
    }


HERE = platform.node()
STATS = {"event": "run_info", "stats": {"train": 2, "encode": 2, "all": 1, "total": 5}}


def test_a_job_that_is_tried_again_has_not_failed():
    events = [STATS, begins(1, "train", "model", "a-0123456789")]
    run = reported(*events, {"event": "job_error", "jobid": 1})
    assert (list(run.failed), list(run.running), run.total) == ([1], [], 5)
    run = reported(
        *events,
        {"event": "job_error", "jobid": 1},
        events[-1],
        {"event": "job_finished", "job_id": 1},
    )
    assert (list(run.failed), list(run.running), list(run.finished)) == ([], [], [1])


def test_a_line_says_what_runs_and_where_the_run_stands(monkeypatch):
    stages = Stages()
    stages.put(MODEL)
    run = reported(
        STATS, begins(1, "train", "model", MODEL.key), {"event": "progress", "done": 1, "total": 5}
    )
    job = run.running[1]
    assert describe_job(job, stages) == "training cross-encoder ce_deneg"
    assert ProgressLine(stages, lambda run: (0.409, 250.0)).text(run, job) == (
        "training cross-encoder ce_deneg · stage 2 of 5 · 41 % · about 4 min left"
    )
    assert (
        ProgressLine(stages, lambda run: None).text(run, job)
        == "training cross-encoder ce_deneg · stage 2 of 5"
    )
    run.take(Event(event="job_info", jobid=2, rule_name="report", output=["results/report.html"]))
    assert describe_job(run.running[2], stages) == "writing the report"
    assert "ce_deneg and 1 more · " in ProgressLine(stages, lambda run: None).text(run, job)


def test_a_terminal_that_is_closed_stops_nothing(monkeypatch):
    # Were an error raised, `tandem run` would end before it has stopped Snakemake, which lives in another session.
    ours, theirs = pty.openpty()
    terminal = os.fdopen(theirs, "w")
    monkeypatch.setattr(sys, "stderr", terminal)
    line = ProgressLine(Stages(), lambda run: None)
    os.close(ours)
    line.refresh(Run())
    line.say("stopping")
    with suppress(OSError):
        terminal.close()


@pytest.mark.parametrize(
    ("seconds", "text"), [(4, "1 min"), (250, "4 min"), (3599, "60 min"), (7000, "1 h 56 min")]
)
def test_a_time_left_is_rounded(seconds, text):
    assert format_about(seconds) == text


def test_the_time_left_follows_estimates_and_the_pace(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    forecast = Forecast(Configuration().plan(), [])
    forecast.seconds = {
        ("model", "a-0"): 100.0,
        ("model", "b-0"): 300.0,
        ("embeddings", "a-0"): 50.0,
    }
    progress = tmp_path / "a-0/progress.json"
    progress.parent.mkdir()
    state = {
        "command": "model",
        "key": "a-0",
        "pid": 1,
        "node": "n",
        "started": 0.0,
        "updated": 0.0,
    }
    progress.write_text(json.dumps(state | {"done": 30, "total": 60}))
    run = reported(STATS, begins(1, "train", "model", "a-0"))
    run.running[1].output = [str(progress.with_name("stage.json"))]
    # half of a; b, which has not begun, each encoding as that of a, and the target as a short job
    whole = 100 + 300 + 2 * 50 + SECONDS_WITHOUT_ESTIMATE
    # half as fast as estimated
    prior = LEAST_PRIOR_SECONDS
    monkeypatch.setattr("time.monotonic", lambda: forecast.began + 2 * 50 + prior)
    share, left = forecast(run)
    assert share == pytest.approx(50 / whole)
    assert left == pytest.approx((whole - 50) * (2 * 50 + 2 * prior) / (50 + prior))
    run.take(
        Event.model_validate(
            begins(2, "train", "model", "b-0", "b.txt") | {"output": ["b-0/stage.json"]}
        )
    )
    done = 50 + 2 * 50 + prior  # b keeps no progress: its seconds so far
    # of the same whole: the share never shrinks
    assert forecast(run)[0] == pytest.approx(done / whole, abs=1e-3)


def test_slow_first_stages_of_a_long_run_do_not_double_what_is_left(monkeypatch):
    forecast = Forecast(Configuration().plan(), [])
    forecast.seconds = {("dataset", "a-0"): 5.0, ("model", "a-0"): 2995.0}
    run = reported(
        {"event": "run_info", "stats": {"dataset": 1, "train": 1, "total": 2}},
        begins(1, "dataset", "dataset", "a-0"),
        {"event": "job_finished", "job_id": 1},
    )
    monkeypatch.setattr("time.monotonic", lambda: forecast.began + 35)  # for 5 estimated seconds
    assert forecast(run)[1] == pytest.approx(2995 * (35 + 150) / (5 + 150))


def test_a_size_that_is_not_known_gives_no_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("datasets: {mine: {source: beir, path: beir}}\ndataset: mine\n")
    (tmp_path / "beir/qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        (tmp_path / "beir" / name).write_text("")
    plan = Configuration([Path("mine.yaml")]).plan()
    stages = list_requested_stages(plan, ["baseline"])
    assert {stage.kind for stage in stages} == {"dataset", "lucene", "bm25", "score"}
    assert Forecast(plan, stages)(reported(STATS)) is None


def table(best: BestSystem | None, *changes: float | None) -> Table:
    """A table of BM25 and of systems with a change against it; p is 0.01 for each."""
    cells = [
        Cell("nDCG@10", None, 38.7),
        *(Cell("nDCG@10", None, 38.7 + c, change=c, p=0.01) for c in changes),
    ]
    rows = [
        FilledRow(f"S{at}" if at else "BM25", "", "BM25" if at else "", "", "", [c])
        for at, c in enumerate(cells)
    ]
    column = FilledColumn("nDCG@10", "nDCG@10", "nDCG@10", "", "", "", ["toy test, 20 queries"])
    return Table("Toy", None, None, 2, "", [column], rows, best=best)


def test_the_answer_is_five_lines():
    best = BestSystem("S1", "nDCG@10", 45.6, "BM25", 6.9, 0.003)
    assert list_answer_lines(table(best, 6.9, -2.0), Path("results/report.html")) == [
        "best    S1: nDCG@10 45.6",
        "gain    +6.9 over BM25",
        "p       0.003",
        "hurt    S2 (−2.0 against BM25, p = 0.010)",
        "report  results/report.html",
    ]
    of_two = replace(best, among="squad dev")
    first, *_ = list_answer_lines(table(of_two, 6.9), Path("r"))
    assert first == "best    S1: nDCG@10 45.6 on squad dev"
    unsure = list_answer_lines(
        table(BestSystem("S1", "nDCG@10", 39.0, "BM25", 0.3, 0.4), 0.3), Path("r")
    )
    assert unsure[2:4] == ["p       0.400: not significant", "hurt    nothing, significantly"]
    assert list_answer_lines(table(BestSystem("BM25", "nDCG@10", 38.7)), Path("r"))[1:3] == [
        "gain    –",
        "p       –",
    ]


def failed(tmp_path, text: str, *errors: dict) -> list[str]:
    """The last lines of a run whose training has failed with this log."""
    (tmp_path / "log.txt").write_text(text)
    stages = Stages()
    stages.put(MODEL)
    begun = begins(1, "train", "model", MODEL.key, str(tmp_path / "log.txt"))
    run = reported(STATS, begun, {"event": "job_error", "jobid": 1}, *errors)
    return explain_failure(run, stages, tmp_path / "run.log", "tandem run -- --unlock")


def test_a_failing_stages_own_line_is_the_last(tmp_path):
    lines = failed(
        tmp_path, "train · step 1/4\ntandem model: loss is nan at step 2\nlower train.lr\n"
    )
    assert lines[0] == f"Snakemake's output: {tmp_path / 'run.log'}"
    assert lines[1].startswith("training cross-encoder ce_deneg failed; its log: ")
    assert lines[2:] == ["tandem model: loss is nan at step 2\nlower train.lr"]


@pytest.mark.parametrize(
    ("status", "text", "line"),
    [
        (
            137,
            "train · step 1/4\n",
            "was killed, perhaps for want of memory; the same command goes on",
        ),
        (
            1,
            "Traceback (most recent call last):\nValueError: x\n",
            "ended with status 1; its last words: ValueError",
        ),
        (1, "", "ended with status 1 and said nothing"),
        # what follows an error's first line is of its message
        (
            1,
            "Traceback (most recent call last):\n  File x\nRuntimeError: CUDA error: y\nFor debugging\nSee: z\n",
            "its last words: RuntimeError: CUDA error: y",
        ),
        # the status of another job
        (
            137,
            "Traceback (most recent call last):\nValueError: x\n",
            "its last words: ValueError",
        ),
    ],
)
def test_a_stage_that_said_nothing_has_a_line_all_the_same(tmp_path, status, text, line):
    error = {
        "event": "error",
        "exception": "RuleException",
        "message": f"returned non-zero exit status {status}.",
    }
    last = failed(tmp_path, text, error)[-1]
    assert last.startswith("tandem run: training cross-encoder ce_deneg ")
    assert line in last


def test_where_a_stage_could_say_nothing_what_keeps_files_from_being_written_is_named(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        error = {"event": "error", "message": "returned non-zero exit status 1."}
        last = failed(tmp_path, "", error)[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "ended with status 1: " in last
    assert "File too large" in last


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("returned non-zero exit status 143.", signal.SIGTERM),
        ("returned non-zero exit status 130.", signal.SIGINT),
        ("died with <Signals.SIGHUP: 1>.", signal.SIGHUP),  # its shell was ended with it
        ("returned non-zero exit status 1.", None),
        ("returned non-zero exit status 137.", None),  # it may want more memory, and is tried again
        ("died with <Signals.SIGKILL: 9>.", None),
    ],
)
def test_a_signal_that_ended_a_stage_is_told_from_a_failure(words, number):
    message = f"CalledProcessError in file x, line 4:\nCommand 'tandem model' {words}"
    assert interrupt_in_background(Event(event="error", message=message)) == number
    assert interrupt_in_background(Event(event="job_error", message=message)) is None


TRACEBACK = 'Traceback (most recent call last):\n\n  File "/a.py", line 4, in run\n    remove(\n    ^^^^\n\n'
READ_ONLY = f"{TRACEBACK}OSError: [Errno 30] Read-only file system: 'a/stage.json'\n"
PROTECTED = """ProtectedOutputException in rule table in file "/a.smk", line 20:
Write-protected output files for rule table:
    output: t.csv, t.md
    wildcards: table=baseline
    affected files:
        t.csv
        t.md"""


NOT_STORED = """WorkflowError:
Failed to store output in storage s3://tandem/tiny/results/toy/model/ce_deneg.tar
S3UploadFailedError: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied
"""
LAST_WORDS = "At least one job did not complete successfully."
NO_CAUSE = {"event": "error", "exception": "WorkflowError", "message": LAST_WORDS}


def test_what_object_storage_refuses_is_named_with_the_reason(tmp_path):
    refused = {"event": "error", "exception": "WorkflowError", "message": NOT_STORED}
    stored = explain_failure(reported(refused, NO_CAUSE), Stages(), tmp_path / "run.log", "")[-1]
    # of a job that Snakemake reports as failed, too
    retrieved = failed(tmp_path, "", refused, NO_CAUSE)[-1]
    (tmp_path / "snakemake.log").write_text(f"{NOT_STORED}{LAST_WORDS}\n")
    plain = f"tandem run: {read_failed_words([str(tmp_path / 'snakemake.log')])}"
    for line in (stored, retrieved, plain):
        assert line.startswith(
            "tandem run: s3://tandem/tiny/results/toy/model/ce_deneg.tar: An error occurred ("
        )
        assert "docs/storage.md" in line
        assert "\n" not in line


PLACE = "/mnt/my lager/results/toy/bm25/bm25.tar"  # of a storage that is a path
STORED = f"WorkflowError:\nFailed to store output in storage {PLACE}\n"
RETRIEVED = f"""WorkflowError:
Failed to retrieve input from storage.
WorkflowError:
    Failed to retrieve storage object from {PLACE}
    WorkflowError:
        cp: cannot open it: Permission denied
"""


@pytest.mark.parametrize(
    ("message", "reason", "hint"),
    [
        (f"{STORED}FileNotFoundError: No 'rsync'\n", "No 'rsync'", "takes it, "),
        (f"{STORED}WorkflowError:\n    cp: no space left\n", "no space left", "takes it, "),
        (RETRIEVED, "cannot open it: Permission denied", "can be read, "),
        (f"Failed to check existence of {PLACE}\nError: gone\n", "gone", "can be read, "),
    ],
)
def test_an_object_may_be_a_path_with_spaces_and_errors_nested(tmp_path, message, reason, hint):
    refused = {"event": "error", "exception": "WorkflowError", "message": message}
    line = explain_failure(reported(refused, NO_CAUSE), Stages(), tmp_path / "run.log", "")[-1]
    assert line.startswith(f"tandem run: {PLACE}: {reason}; once the storage {hint}the same")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (
            "/spool/slurm_script: 4: /my/.venv/bin/python: not found",
            "/my/.venv/bin/python: not found",
        ),
        (
            "/spool/slurm_script: line 4: /my/.venv/bin/python: No such file or directory",
            "/my/.venv/bin/python: No such file or directory",
        ),
        (
            "/usr/bin/python3.11: No module named snakemake",
            "/usr/bin/python3.11: No module named snakemake",
        ),
    ],
)
def test_a_node_without_the_environment_is_named_with_its_log(text, missing, tmp_path):
    """What shells and Python say where the interpreter, or Snakemake, is not on the node."""
    slurm, stage, run = (tmp_path / name for name in ("7.log", "log.txt", "run.log"))
    slurm.write_text(text + "\n")
    run.write_text(f"    log: {stage}, {slurm} (check log file(s) for error details)\n")
    assert read_failed_words([run]).startswith(f"{slurm}: {missing} on the job's node; ")
    # it had started: its own words come first
    stage.write_text("tandem model: loss is nan at step 2\n")
    assert read_failed_words([run]).startswith("tandem model: loss is nan at step 2\n")


def test_why_a_batch_system_did_not_accept_a_job_is_named(tmp_path):
    """The stage has not started then: its log is empty, and no status is known."""
    (tmp_path / "run.log").write_text(
        "    message: Job submission failed with exception: The 'sacctmgr' reported: 'no account mine\n"
        ".'.For further error details see the cluster/cloud log and the log files of the involved rule(s).\n"
        f"    log: {tmp_path / 'log.txt'} (check log file(s) for error details)\n"
    )
    last = failed(tmp_path, "")[-1]
    assert last.startswith(
        "tandem run: a job was not submitted: The 'sacctmgr' reported: 'no account mine .'.; correct the profile"
    )
    assert last == f"tandem run: {read_failed_words([str(tmp_path / 'run.log')])}"


def test_the_error_before_snakemakes_last_words_is_the_cause(tmp_path):
    cause = {
        "event": "error",
        "exception": "WorkflowError",
        "message": "WorkflowError:\nno more file handles",
    }
    last = explain_failure(reported(cause, NO_CAUSE), Stages(), tmp_path / "run.log", "")[-1]
    assert last == "tandem run: no more file handles"


def test_a_stage_whose_archive_goes_to_object_storage_is_at_work_beside_its_log(tmp_path):
    record = {
        "command": "model",
        "key": MODEL.key,
        "pid": os.getpid(),
        "node": HERE,
        "done": 1,
        "total": 4,
    }
    record |= {"started": 1.0, "updated": 2.0}
    (tmp_path / "progress.json").write_text(json.dumps(record))
    job = BegunJob(
        "train", {}, [f".snakemake/storage/s3/tandem/{MODEL.key}.tar"], [str(tmp_path / "log.txt")]
    )
    assert job.share() == 0.25


@pytest.mark.parametrize(
    ("errors", "text", "line"),
    [  # of each the exception's name and its message
        (
            ["LockException", "Error: Directory cannot be locked.\nPlease"],
            "",
            "; if none is running: tandem run",
        ),
        (
            ["WorkflowError", 'In file "/a", line 4:\nno such\n  thing\nFile "/a", line 4'],
            "",
            "tandem run: no such thing",
        ),
        (
            ["OSError", READ_ONLY],
            "",
            "tandem run: a/stage.json: Read-only file system; make it writable, or work in",
        ),
        (
            ["ValueError", f"{TRACEBACK}ValueError: two\nlines\n"],
            "",
            "tandem run: ValueError: two lines",
        ),
        (
            ["ProtectedOutputException", PROTECTED],
            "",
            "tandem run: t.csv: write-protected; make it writable, or work in",
        ),
        (
            [],
            "OSError: [Errno 13] Permission denied: '.snakemake'\n",
            "run: .snakemake: Permission denied; get the",
        ),
        (
            [],
            "usage\nsnakemake: error: unrecognized arguments: --x\n",
            "unrecognized arguments: --x",
        ),
        ([], "", "Snakemake ended without a word"),
    ],
)
def test_snakemakes_own_errors_are_one_line(errors, text, line, tmp_path):
    (tmp_path / "run.log").write_text(text)
    events = [{"event": "error", "exception": errors[0], "message": errors[1]}] if errors else []
    last = explain_failure(
        reported(*events), Stages(), tmp_path / "run.log", "tandem run -- --unlock"
    )[-1]
    assert last.startswith("tandem run: ")
    assert line in last
    assert "\n" not in last


@pytest.mark.parametrize(
    ("status", "cause"),
    [(137, "SIGKILL, perhaps for want of memory"), (143, "SIGTERM"), (129, "SIGHUP")],
)
def test_a_snakemake_that_was_killed_is_said_so_and_how_to_go_on(tmp_path, status, cause):
    """The last line of its log, a training's progress, had stood there as if it were the reason."""
    (tmp_path / "run.log").write_text("train ce_bm25neg · step 5/50\n")
    unlock = "tandem run mine.yaml -- --unlock"
    last = explain_failure(reported(STATS), Stages(), tmp_path / "run.log", unlock, status)[-1]
    again = f"free the folder: {unlock}; then the same command goes on with what is done"
    assert last == f"tandem run: Snakemake was ended by {cause}; {again}"


@pytest.fixture
def watched(monkeypatch, tmp_path, capsys):
    """`watched(seconds, done)`: what is said so many seconds after a training of 1,000 s began, at `done` of 100."""
    monkeypatch.chdir(tmp_path)
    stages = Stages()
    stages.put(MODEL)
    forecast = Forecast(Configuration().plan(), [])
    forecast.seconds = {("model", MODEL.key): 1000.0}
    run = reported(STATS, begins(1, "train", "model", MODEL.key))
    run.running[1].output = [str(tmp_path / "stage.json")]
    began, line = run.running[1].began, ProgressLine(stages, forecast)
    capsys.readouterr()  # a machine that was not measured yet is measured for the forecast

    def look(seconds, done=None, started=0.0, node=HERE):
        monkeypatch.setattr("time.monotonic", lambda: began + seconds)
        if done is not None:
            times = {"started": started, "updated": started + seconds}
            job = {
                "command": "model",
                "key": MODEL.key,
                "pid": 1,
                "node": node,
                "done": done,
                "total": 100,
            }
            (tmp_path / "progress.json").write_text(json.dumps(job | times))
        line.name_slow_stages(run)
        return capsys.readouterr().err

    return look


def test_a_stage_at_a_fifth_of_its_estimate_is_named_once(watched, monkeypatch):
    assert watched(500) == ""  # it waits in a queue, or loads its model
    assert watched(600, 40) == ""  # that far an earlier try had come
    assert watched(700, 50) == ""  # 100 s for a tenth, as estimated
    assert watched(1000, 10) == ""  # a validation within it shows a progress of its own
    assert watched(1099, 50) == ""
    monkeypatch.setattr("os.getloadavg", lambda: (count_usable_cores() + 7.6, 0.0, 0.0))
    text = watched(1101, 50)
    assert text.startswith(
        "training cross-encoder ce_deneg is slow: 8 min 21 s for what was estimated at 1 min 40 s; "
    )
    assert f"{count_usable_cores() + 7.6:.1f} threads" in text
    assert watched(2000, 50) == ""


def test_a_stage_that_gets_nowhere_is_slow_after_five_times_its_estimate(watched):
    assert watched(100, 0) == ""
    assert watched(5099, 0) == ""
    assert " 1 h 23 min for what was estimated at 16 min 40 s" in watched(5101, 0)


def test_a_stage_that_waits_for_another_try_is_not_slow(watched):
    assert watched(0, 30) == ""
    assert watched(9000) == ""  # the file is of a try that was killed
    assert watched(9100, 30, started=9050.0) == ""
    assert watched(9200, 40, started=9050.0) == ""


def test_the_load_of_this_machine_explains_no_stage_of_another(watched):
    assert watched(0, 0) == ""
    text = watched(9000, 1, node="n17")
    assert "n17" in text
    assert "threads" not in text
