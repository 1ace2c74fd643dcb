"""The tiny graph with every stage's own command, to be killed, starved and damaged."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

TORTURE = os.environ.get("TANDEM_TORTURE", "0") != "0"  # `make torture`
SEED = int(os.environ.get("TANDEM_SEED", "20"))
TRAINING_LOG = "log.parquet"  # of a training, with its throughput
# What a stage may leave beside its files.
LEFT = (".partial", "checkpoints", "shards", "work", "log.txt", "progress.json")


class Copy:
    """A finished tiny project of one's own.

    Attributes:
        folder: where its results/ is.
        whole_one: the finished project that it is a copy of.
        same: manifest → that of the stage of which it is a variant.
        stages: of its configuration, each after what it needs.
    """

    def __init__(self, folder: Path, stages: list, whole_one: Path) -> None:
        self.folder, self.stages, self.whole_one = folder, stages, whole_one
        self.same: dict[str, str] = {}

    def line(self, stage) -> list[str]:
        """The command that makes a stage, as its rule has it."""
        words = [
            *shlex.split(stage.args),
            *shlex.split(stage.how),
            "--run.workers",
            str(self.workers(stage)),
        ]
        return [sys.executable, "-m", "tandem", stage.kind, *words, "--out", stage.manifest]

    def workers(self, stage) -> int:
        """Threads that the rule gave a stage: another number trains with other last bits."""
        return json.loads(
            (self.whole_one / self.same.get(stage.manifest, stage.manifest)).read_text()
        )["execution"]["workers"]

    def start(self, stage, **options) -> subprocess.Popen:
        """Begin a stage in a process group of its own."""
        environment = {**os.environ, **options.pop("env", {})}
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            self.line(stage),
            cwd=self.folder,
            env=environment,
            start_new_session=True,
            **pipe,
            **options,
        )

    def run(self, stage, **options) -> tuple[int, str]:
        """A stage's exit status and what it says."""
        process = self.start(stage, **options)
        output, _ = process.communicate()
        return process.returncode, output

    def remove(self, stage) -> None:
        """Take a stage's artifact away, and the pairs that cross-encoders have scored."""
        shutil.rmtree(self.folder / stage.folder, ignore_errors=True)
        for pairs in self.folder.glob("results/*/pairs"):
            shutil.rmtree(pairs)

    def files(self, stage) -> dict[str, str]:
        """Name → sha256 of the files that stand under final names, finished or not."""
        folder = self.folder / stage.folder
        paths = {
            str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()
        }
        final = {
            name: path
            for name, path in paths.items()
            if name.split("/")[0] not in (*LEFT, "stage.json", TRAINING_LOG)
        }
        return {
            name: sha256(path)
            for name, path in final.items()
            if not name.split("/")[-1].startswith(".")
        }

    def whole(self, stage) -> bool:
        """Whether the artifact is there with every file as its manifest says; a `UserError` if a file is not."""
        return (self.folder / stage.manifest).is_file() and bool(
            open_artifact(self.folder / stage.folder)
        )

    def named(self, kind: str, name: str = ""):
        """The first stage of a kind whose key begins so."""
        return next(
            stage for stage in self.stages if stage.kind == kind and stage.key.startswith(name)
        )


def ordered(stages) -> list:
    """Stages, each after those it needs."""
    order: dict = {}

    def add(stage) -> None:
        for other in stage.upstream.values():
            add(other)
        order.setdefault(stage.key, stage)

    for stage in stages:
        add(stage)
    return list(order.values())


def copy_to(project, stages, folder: Path) -> Copy:
    """The finished project in another folder, without Snakemake's own notes."""
    shutil.copytree(project.folder, folder, ignore=shutil.ignore_patterns(".snakemake"))
    return Copy(folder, stages, project.folder)


def kill(process: subprocess.Popen) -> None:
    """SIGKILL a process with all it has started, and wait for it."""
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def until(happened, process: subprocess.Popen, seconds: float = 120) -> None:
    """Wait until something has happened or the process has ended."""
    deadline = time.monotonic() + seconds
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def chosen(stages, *quick):
    """All kinds of stages in the long round, those named in the short one; one of each."""
    kinds = {stage.kind: stage for stage in stages}
    return list(kinds.values()) if TORTURE else [kinds[kind] for kind in quick]


def one_line(output: str, *words: str) -> None:
    """What a stage said is not a traceback and ends in a line with these words, in any case."""
    assert "Traceback" not in output
    last = output.strip().splitlines()[-1]
    assert any(word.lower() in last.lower() for word in words), output
