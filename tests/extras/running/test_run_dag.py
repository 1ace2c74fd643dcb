"""`tandem run` through Snakemake itself: the answer, failures, flags, a terminal, Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from building import make_stage
from tiny_project import LAYOUT, tiny_config, write_beir

from tandem import ROOT
from tandem.extras.operations.targets import Configuration
from tandem.extras.running.command import Snakemake, read_request
from tandem.extras.running.progress import Forecast, Line


class Place:
    """A folder with the tiny collection and mine.yaml; `run(*words)` runs `tandem run` there."""

    def __init__(self, folder: Path, documents, encoder_folder: Path) -> None:
        self.folder = folder
        write_beir(folder / "beir", documents)
        layout = {**LAYOUT, "rows": [{"system": "BM25", "run": "bm25"}, {"system": "Steep", "run": "steep"}]}
        (folder / "words.yaml").write_text(yaml.safe_dump(layout))
        config = tiny_config(folder, encoder_folder) | {"bm25": {"engine": "bm25s"}, "tables": ["words.yaml"]}
        config["sparse"] = {"steep": {"k1": 1.6}}
        config["models"]["de_bm25neg"]["train"] = {**config["models"]["de_bm25neg"]["train"], "steps": 100_000}
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))

    def line(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tandem", "run", *words]

    def run(self, *words: str) -> tuple[int, list[str], list[str]]:
        """Exit status and lines of standard output and error."""
        done = subprocess.run(self.line(*words), cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture(scope="module")
def place(tmp_path_factory, documents, encoder_folder) -> Place:
    return Place(tmp_path_factory.mktemp("run"), documents, encoder_folder)


@pytest.fixture(scope="module")
def finished(place):
    """The first run: it makes the table of BM25's two runs, and the report."""
    return place.run("mine.yaml")


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


def test_on_a_terminal_one_line_is_refreshed(place, finished):
    ours, theirs = pty.openpty()
    line = place.line("mine.yaml", "words", "--", "--forcerun", "table")
    done = subprocess.run(line, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    assert done.returncode == 0, shown
    assert "\r\x1b[Kwriting words · stage 1 of 2 · " in shown
    assert "\r\x1b[K2 stages in " in shown


def test_what_a_flag_makes_snakemake_print_is_printed_and_a_dry_run_reports_no_job_as_begun(place, finished):
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


def test_ctrl_c_has_a_training_save_its_state_and_frees_the_folder(place, finished, monkeypatch):
    monkeypatch.chdir(place.folder)
    model = Configuration([Path("mine.yaml")]).plan().planner.model("de_bm25neg", "test")
    for stage in model.upstream.values():
        make_stage(stage)
    line = place.line("mine.yaml", model.manifest)
    running = subprocess.Popen(
        line,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    progress, deadline = Path(model.folder, "progress.json"), time.monotonic() + 300
    while time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.2)
        if progress.is_file() and json.loads(progress.read_text()).get("note"):
            break
    jobs = psutil.Process(running.pid).children(recursive=True)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 1, err
    assert err.splitlines()[-1] == "tandem run: stopped; the same command goes on from there"
    assert list(Path(model.folder).glob("checkpoints/step-*/state.json"))
    assert "stopped by SIGINT; the next try goes on from there" in Path(model.folder, "log.txt").read_text()
    assert not progress.exists()
    assert not [job for job in jobs if job.is_running() and job.status() != psutil.STATUS_ZOMBIE]
    assert place.run("mine.yaml", "words")[0] == 0  # the folder is not locked


class InterruptedLine(Line):
    """A line during whose first refresh Ctrl-C is pressed."""

    pressed = False

    def refresh(self, run):
        if not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)
        super().refresh(run)


@pytest.mark.usefixtures("finished")
def test_ctrl_c_while_the_line_is_refreshed_stops_snakemake_too(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    request = read_request(["mine.yaml", "words", "--", "--forcerun", "bm25s"])
    plan, before = request.configuration.plan(), signal.getsignal(signal.SIGINT)
    line = InterruptedLine(plan.stages, Forecast(plan, []))
    snakemake = Snakemake(request.words, Path("logs/interrupted.log"))
    status = snakemake.follow(line)[1]
    assert line.pressed
    assert snakemake.stopped
    assert status != 0
    assert snakemake.process.poll() is not None
    assert signal.getsignal(signal.SIGINT) is before
    assert place.run("mine.yaml", "--", "--unlock")[0] == 0  # it may have been stopped at any moment


def test_every_target_of_snakemake_is_known(place):
    line = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--list-target-rules"]
    done = subprocess.run(line, cwd=place.folder, capture_output=True, text=True)
    rules = {word for word in done.stdout.split() if word.isidentifier()}
    assert {"all", "summary", "audits"} <= rules
    assert rules <= Configuration().plan().targets().keys()
