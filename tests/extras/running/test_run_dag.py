"""`tandem run` through Snakemake itself: the answer, failures, flags, a terminal, Ctrl-C."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path

import psutil
import pytest
import tiny_project
import yaml
from building import make_stage
from tiny_project import LAYOUT, tiny_config, write_beir

from tandem import ROOT
from tandem.extras.import_path import with_library
from tandem.extras.running.command import Snakemake, read_request
from tandem.extras.running.run_progress import Forecast, ProgressLine
from tandem.extras.running.warm import ADDRESS
from tandem.extras.targets import Configuration


class Place:
    """A folder with the tiny collection and mine.yaml; `run(*words)` runs `tandem run` there."""

    def __init__(self, folder: Path, documents, encoder_folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ.copy()
        write_beir(folder / "beir", documents)
        layout = {
            **LAYOUT,
            "rows": [{"system": "BM25", "run": "bm25"}, {"system": "Steep", "run": "steep"}],
        }
        (folder / "words.yaml").write_text(yaml.safe_dump(layout))
        config = tiny_config(folder, encoder_folder) | {
            "bm25": {"engine": "bm25s"},
            "tables": ["words.yaml"],
        }
        config["sparse"] = {"steep": {"k1": 1.6}}
        config["models"]["de_bm25neg"]["train"] = {
            **config["models"]["de_bm25neg"]["train"],
            "steps": 100_000,
        }
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))

    def line(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tandem", "run", *words]

    def run(self, *words: str) -> tuple[int, list[str], list[str]]:
        """Exit status and lines of standard output and error."""
        done = subprocess.run(
            self.line(*words), cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture(scope="module")
def place(tmp_path_factory, documents, encoder_folder) -> Place:
    return Place(tmp_path_factory.mktemp("run"), documents, encoder_folder)


@pytest.fixture(scope="module")
def finished(place):
    """The first run: it makes the table of BM25's two runs, and the report; later ones need not start servers."""
    run = place.run("mine.yaml")
    place.environment |= tiny_project.variables_of_stages()
    return run


def test_a_run_says_what_it_does_and_ends_with_the_answer(place, finished):
    status, out, err = finished
    assert status == 0, err
    jobs = [line for line in err if " · stage " in line]
    assert jobs[0] == "reading tiny · stage 1 of 9"  # its size is not known yet
    assert any(line.startswith("searching bm25.test · stage ") and "left" in line for line in err)
    assert "stages in" in err[-1]
    log = place.folder / err[-1].partition("Snakemake's output: ")[2]
    assert "9 of 9 steps (100%) done" in log.read_text()
    assert [line.split()[0] for line in out[-5:]] == ["best", "gain", "p", "hurt", "report"]
    page = Path(out[-1].split(maxsplit=1)[1])
    assert page == place.folder / "results/mine/report.html"
    assert "Steep" in page.read_text()
    assert not (place.folder / "results/tables").exists()


def test_a_second_run_makes_nothing_and_answers_again(place, finished):
    status, out, err = place.run("mine.yaml", "words")
    assert (status, out[-5:-1]) == (0, finished[1][-5:-1])
    assert out[-1].endswith("results/mine/tables/words.html")
    assert err[-1].startswith("0 stages in ")


def test_a_draft_of_the_users_that_is_named_like_a_module_of_pythons_is_not_imported(
    place, finished
):
    draft = place.folder / "random.py"
    draft.write_text("raise SystemExit('a draft')\n")
    # -P: as the installed command, which does not look for modules in the folder
    line = [sys.executable, "-P", *place.line("mine.yaml", "words")[1:]]
    done = subprocess.run(
        line, cwd=place.folder, env=place.environment, capture_output=True, text=True
    )
    draft.unlink()
    assert (done.returncode, done.stderr.splitlines()[-1][:12]) == (0, "0 stages in ")


def test_a_table_of_before_is_no_answer_where_a_flag_leaves_it_as_it_was(place, finished):
    words = ("mine.yaml", "words", "--config", "bm25={engine: bm25s, k1: 0.4}")
    status, out, _ = place.run(*words, "--", "--until", "dataset")
    assert (status, out) == (0, ["not made: words"])


def test_on_a_terminal_one_line_is_refreshed(place, finished):
    ours, theirs = pty.openpty()
    line = place.line("mine.yaml", "words", "--", "--forcerun", "table")
    running = subprocess.Popen(
        line, cwd=place.folder, env=place.environment, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = ""
    with suppress(OSError):  # the terminal's end; it holds a few thousand characters at once
        while more := os.read(ours, 1 << 16):
            shown += more.decode(errors="replace")
    assert running.wait() == 0, shown
    assert "\r\x1b[Kwriting words · stage 1 of 2 · " in shown
    assert "\r\x1b[K2 stages in " in shown


def test_what_a_flag_makes_snakemake_print_is_printed_and_a_dry_run_reports_no_job_as_begun(
    place, finished
):
    status, out, err = place.run("mine.yaml", "words", "--", "-n", "--forcerun", "bm25s")
    assert status == 0
    assert any("rule bm25s:" in line for line in out)
    assert err == []


def test_a_failing_stages_line_is_the_last(place, finished, tmp_path):
    broken = yaml.safe_load((place.folder / "mine.yaml").read_text())
    (tmp_path / "beir/qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        (tmp_path / "beir" / name).write_text("no JSON\n")
    broken["datasets"]["tiny"]["path"] = str(tmp_path / "beir")
    (place.folder / "broken.yaml").write_text(yaml.safe_dump(broken))
    status, _, err = place.run("broken.yaml", "words")
    assert status == 1
    assert err[-1].startswith("tandem dataset: ")
    assert str(tmp_path / "beir") in err[-1]
    assert err[-2].startswith("reading tiny failed; its log: results/tiny/dataset/")
    assert not any("Traceback" in line for line in err)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--", "--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["results/tiny/nothing.txt"], "tandem run: No rule to produce results/tiny/nothing.txt"),
    ],
)
def test_snakemakes_own_refusals_are_the_last_line(place, finished, words, line):
    status, _, err = place.run("mine.yaml", *words)
    assert status != 0
    assert err[-1].startswith("tandem run: ")
    assert line in err[-1]


def test_a_locked_folder_says_how_to_unlock(place, finished):
    locks = place.folder / ".snakemake/locks"
    locks.mkdir(exist_ok=True)
    page = place.folder / "results/mine/tables/words.csv"
    (locks / "0.output.lock").write_text(f"{page.relative_to(place.folder)}\n")
    status, _, err = place.run("mine.yaml", "words", "--", "--forcerun", "table")
    assert status == 1
    assert err[-1].endswith("; if none is running: tandem run mine.yaml -- --unlock")
    status, out, _ = place.run("mine.yaml", "--", "--unlock")
    assert (status, out[-1]) == (0, "Unlocked working directory.")


@pytest.fixture(scope="module")
def training(place, finished):
    """A model whose training takes long, with all that it reads."""
    with chdir(place.folder):
        model = Configuration([Path("mine.yaml")]).plan().planner.model("de_bm25neg", "test")
        for stage in model.upstream.values():
            make_stage(stage)
    return model


class Started:
    """`tandem run` of a training that has done some steps, and its processes."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.process, progress = psutil.Process(pid), folder / "progress.json"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.is_running():
            time.sleep(0.2)
            if progress.is_file() and json.loads(progress.read_text()).get("note"):
                break
        self.below = self.process.children(recursive=True)
        (self.stage,) = [
            job for job in self.below if job.cmdline()[1:5] == ["-P", "-m", "tandem", "model"]
        ]


def in_foreground(line):
    """Start a program as a shell does that waits for it; return its process' number."""
    errors = Path("err.txt").open("w")  # noqa: SIM115, the program's from here on
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=heed).pid


def heed():
    """Heed what the tests' own shell may have its background jobs ignore."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def in_background(line):
    """Start a program by `nohup … &`: a shell has it ignore Ctrl-C, and `nohup` a terminal that is closed."""
    script = 'nohup "$@" > out.txt 2> err.txt & echo $!'
    return int(
        subprocess.run(
            ["sh", "-c", script, "sh", *line], capture_output=True, text=True, check=True
        ).stdout
    )


def interrupt(started):
    started.process.send_signal(signal.SIGINT)


def terminate(started):
    """What `timeout` does: the signal comes twice."""
    started.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    started.process.send_signal(signal.SIGTERM)


def hang_up(started):
    """What a closed terminal and its shell do."""
    started.process.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    started.process.send_signal(signal.SIGHUP)


def terminate_all(started):
    """What systemd and slurm do."""
    for process in [started.process, *started.below]:
        process.send_signal(signal.SIGTERM)


def terminate_stage(started):
    started.stage.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (in_foreground, interrupt),
        (in_background, terminate),
        (in_foreground, hang_up),
        (in_background, terminate_all),
        (in_foreground, terminate_stage),
    ],
)
def test_what_stops_a_run_has_a_training_save_its_state_and_begins_nothing_more(
    start, end, place, training, monkeypatch
):
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/workflow")  # as `make run` has it
    decided = [ADDRESS] if end is terminate_all else []  # which ends the run's own servers, too
    for name in tiny_project.variables_of_stages().keys() - decided:
        monkeypatch.setenv(name, tiny_project.variables_of_stages()[name])
    folder = Path(training.folder)
    shutil.rmtree(folder, ignore_errors=True)
    for log in Path("logs").glob("*"):
        log.unlink()
    started = Started(start(place.line("mine.yaml", training.manifest)), folder)
    # a server's process computes
    assert not any("torch" in part.path for part in started.stage.memory_maps())
    end(started)
    _, alive = psutil.wait_procs([started.process, *started.below], timeout=120)
    assert not alive
    err = Path("err.txt").read_text().splitlines()
    assert err[-1] == "tandem run: stopped; the same command goes on from there"
    assert list(folder.glob("checkpoints/step-*/state.json"))
    (log,) = Path("logs").glob("run-*.log")
    assert log.read_text().count("localrule train:") == 1  # it was not tried again
    if end is not terminate_all:  # that ends what writes the log, too
        number = "SIGTERM" if end is terminate_stage else "SIGINT"
        assert (
            f"stopped by {number}; the next try goes on from there"
            in (folder / "log.txt").read_text()
        )
    assert not (folder / "progress.json").exists()
    assert not list(Path(".snakemake/locks").glob("*"))


class InterruptedLine(ProgressLine):
    """A line during whose first refresh Ctrl-C is pressed."""

    pressed = False

    def refresh(self, run):
        if not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)
        super().refresh(run)


@pytest.mark.usefixtures("finished", "unignored")
def test_ctrl_c_while_the_line_is_refreshed_stops_snakemake_too(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    request = read_request(["mine.yaml", "words", "--", "--forcerun", "bm25s"])
    plan, before = request.configuration.plan(), signal.getsignal(signal.SIGINT)
    line = InterruptedLine(plan.stages, Forecast(plan, []))
    snakemake = Snakemake(request.words, Path("logs/interrupted.log"), with_library(os.environ))
    status = snakemake.follow(line)[1]
    assert line.pressed
    assert snakemake.stopped
    assert status != 0
    assert snakemake.process.poll() is not None
    assert signal.getsignal(signal.SIGINT) is before
    # it may have been stopped at any moment
    assert place.run("mine.yaml", "--", "--unlock")[0] == 0


def test_every_target_of_snakemake_is_known(place):
    line = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--list-target-rules"]
    done = subprocess.run(line, cwd=place.folder, capture_output=True, text=True)
    rules = {word for word in done.stdout.split() if word.isidentifier()}
    assert {"all", "summary", "audits"} <= rules
    assert rules <= Configuration().plan().targets().keys()
