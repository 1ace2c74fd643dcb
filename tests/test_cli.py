"""The command line: its help, its mistakes, and that stages start without it."""

import hashlib
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tandem import ROOT, __version__
from tandem.cli import run
from tandem.commands import COMMANDS
from tandem.errors import UserError
from tandem.stages import KINDS, shard_commands


def test_help_lists_every_command_in_its_group(capsys):
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    for command in COMMANDS.values():
        assert not command.summary or f" {command.name} " in page
        assert command.group in page
    assert all(kind in page for kind in KINDS)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.summary])
def test_every_command_has_a_page_of_its_own(name, capsys):
    assert run([name, "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 1


def test_a_page_has_flags_with_types_and_defaults(capsys):
    run(["search", "--help"])
    page = capsys.readouterr().out
    assert "--k INT" in page
    assert "[default: 10]" in page
    assert "passages shown" in page
    run(["gc", "--help"])
    assert "--configfile" in capsys.readouterr().out
    run(["error-table", "--help"])
    page = capsys.readouterr().out
    assert "--errors PATH" in " ".join(page.split())
    assert "filled sheet" in page
    assert "[required]" in page


@pytest.mark.parametrize("name", [*KINDS, *shard_commands()])
def test_every_stage_has_a_page(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"tandem {name} --params" in capsys.readouterr().out


WRITES = """
from tandem.stages import Kind, register_stage
from tandem.store.job import writing

def run(job):
    with writing(job):
        pass

register_stage(Kind("xyz", run))
register_stage(Kind("idle", print))
"""


def test_a_stage_of_a_plugin_that_writes_nothing_is_one_line(tmp_path):
    plugin, out = tmp_path / "my.py", tmp_path / "idle-0123456789/stage.json"
    plugin.write_text(WRITES)
    line = [
        sys.executable,
        "-m",
        "tandem",
        "idle",
        "--run.plugins",
        json.dumps([str(plugin)]),
        "--out",
        str(out),
    ]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith(f"tandem idle: has ended without {out}")) == (
        1,
        True,
    )


def test_a_plugin_that_was_edited_while_a_run_was_under_way_makes_nothing_under_the_old_key(
    tmp_path,
):
    plugin = tmp_path / "my.py"
    plugin.write_text(WRITES)
    digest = hashlib.sha256(plugin.read_bytes()).hexdigest()[:16]
    line = [sys.executable, "-m", "tandem", "xyz", "--run.plugins", json.dumps([str(plugin)])]
    line += [
        "--out",
        str(tmp_path / "xyz-0123456789/stage.json"),
        "--params.plugins",
        json.dumps([f"my.py@{digest}"]),
    ]
    assert subprocess.run(line, capture_output=True).returncode == 0
    with plugin.open("a") as file:
        file.write("# another thought\n")
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"tandem xyz: xyz: plugins: my.py@{digest} was planned, but now it is my.py@"
    )


def test_the_stage_of_a_plugin_has_a_page(tmp_path):
    """With the option that the rules pass, which the line about an unknown command names."""
    plugin = tmp_path / "my.py"
    plugin.write_text(
        "from tandem.stages import Kind, register_stage\nregister_stage(Kind('xyz', print))\n"
    )
    line = [
        sys.executable,
        "-m",
        "tandem",
        "xyz",
        "--help",
        "--run.plugins",
        json.dumps([str(plugin)]),
    ]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith("usage: tandem xyz --params"), done.stderr


def test_the_version(capsys):
    run(["--version"])
    name, version, *_, place = capsys.readouterr().out.split()
    assert (name, version, place) == ("tandem", f"{__version__},", str(ROOT))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verfy"], "tandem: verfy is not a command; did you mean verify?\n"),
        (["embedings"], "tandem: embedings is not a command; did you mean embeddings?\n"),
        (
            ["xyz", "--help"],
            "tandem: xyz is not a command; all commands: tandem --help; "
            """of a plugin's stage: tandem xyz --help --run.plugins '["my.py"]'\n""",
        ),
    ],
)
def test_an_unknown_command_is_one_line_with_status_2(words, line, capsys):
    assert run(words) == 2
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "--threads", "0"], 'Invalid value "0" for --threads. Must be >= 1'),
        (["verify", "--threads", "many"], "Invalid value for --threads"),
        (["check", "--strict", "--json"], "Unknown option: --json"),
        (["gc", "mine.yaml"], "mine.yaml is not allowed here; say --configfile mine.yaml"),
        (["lineage"], "parameter TARGET requires an argument"),
    ],
)
def test_a_mistake_is_one_line(words, message):
    with pytest.raises(UserError, match=message) as error:
        run(words)
    assert "\n" not in str(error.value)


def test_nothing_said_is_the_help_with_status_2(capsys):
    assert run([]) == 2
    assert "verify" in capsys.readouterr().out


def test_a_stage_starts_without_the_machinery_of_other_commands(tmp_path):
    code = (
        "import sys; sys.argv = ['tandem', 'score', '--out']; from tandem.__main__ import main; status = main()\n"
        "assert status == 1 and not {'cyclopts', 'rich', 'torch', 'faiss'} & sys.modules.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "tandem score: score: --out has no value\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "q.csv: cannot be read: No such file or directory"),
        (b"question,answer\n", "q.csv: has no column split; needed: question, answer, split"),
        (b"question\xff", "q.csv: is not a CSV file in UTF-8"),
    ],
)
def test_a_mistake_in_the_file_of_the_example_s_command_is_one_line(content, line, tmp_path):
    if content is not None:
        (tmp_path / "q.csv").write_bytes(content)
    plugin = json.dumps([str(ROOT / "examples/plugin/my_ideas.py")])
    words = [sys.executable, "-m", "tandem", "questions", "q.csv", "--run.plugins", plugin]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    (found,) = done.stderr.splitlines()
    assert (done.returncode, found.startswith(f"tandem questions: {line}")) == (1, True)


PRINTS = """
from tandem.commands import RESULTS, Command, register_command


def show_marks() -> None:
    print("0,5 · ▲")


register_command(Command("marks", show_marks, RESULTS))
"""


@pytest.fixture
def marks(tmp_path):
    """`marks(stdout)`: run a command that prints what latin-1 does not have, where that is the encoding."""
    (tmp_path / "my.py").write_text(PRINTS)
    line = [sys.executable, "-m", "tandem", "marks", "--run.plugins", "my.py"]

    def run(stdout):
        environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
        return subprocess.run(
            line, env=environment, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE
        )

    return run


def test_what_cannot_be_encoded_is_escaped_in_a_file(marks):
    done = marks(subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0,5 \xb7 \\u25b2\n", b"")


def test_what_cannot_be_encoded_is_a_question_mark_on_a_terminal(marks):
    terminal, stdout = pty.openpty()
    assert marks(stdout).returncode == 0
    assert os.read(terminal, 100) == b"0,5 \xb7 ?\r\n"
    os.close(terminal)
    os.close(stdout)


@pytest.mark.parametrize("words", [["--version"], ["score", "--help"], ["search-worker", "--help"]])
def test_the_reader_of_a_page_of_help_may_stop_reading(words, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr("sys.stdout", os.fdopen(writer, "w", buffering=1))
    assert run(words) == 0


@pytest.mark.parametrize("command", ["datasets", "--version", "run -- --version"])
def test_a_reader_may_stop_reading(tmp_path, command):
    line = f"{sys.executable} -m tandem {command} | true"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert "BrokenPipeError" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_stream_that_is_closed_is_no_fault(tmp_path, closed):
    line = f"{sys.executable} -m tandem datasets {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_file_beside_a_plugin_is_no_part_of_it(tmp_path):
    (tmp_path / "helper.py").write_text("FACTOR = 2\n")
    (tmp_path / "my.py").write_text("from helper import FACTOR\n")
    line = [sys.executable, "-P", "-m", "tandem", "marks", "--run.plugins", "my.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    (found,) = done.stderr.splitlines()
    assert found.startswith("tandem marks: plugins: my.py:1: ModuleNotFoundError")
    assert "helper.py" in found


WRITING = """
import time
from pathlib import Path
from tandem.commands import OPERATIONS, Command, register_command
from tandem.store.files import replacing

def write():
    with replacing(Path("out").absolute()) as draft:
        draft.mkdir()
        print("writing", flush=True)
        time.sleep(60)

register_command(Command("write", write, OPERATIONS, resumes={resumes}))
"""


@pytest.mark.parametrize(
    ("stop", "resumes", "status", "line"),
    [
        (signal.SIGTERM, False, 143, "tandem write: stopped\n"),
        (signal.SIGHUP, False, 129, "tandem write: stopped\n"),
        (
            signal.SIGINT,
            True,
            130,
            "tandem write: stopped; the same command goes on with what is done\n",
        ),
    ],
)
def test_what_is_half_written_is_removed_when_a_signal_ends_a_command(
    tmp_path, stop, resumes, status, line
):
    plugin = tmp_path / "writing.py"
    plugin.write_text(WRITING.format(resumes=resumes))
    words = ["-m", "tandem", "write", "--run.plugins", json.dumps([str(plugin)])]
    running = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a shell's background job ignores some
        preexec_fn=lambda: signal.signal(stop, signal.default_int_handler if stop == signal.SIGINT else signal.SIG_DFL),
    )  # fmt: skip
    assert running.stdout.readline() == "writing\n"
    running.send_signal(stop)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (status, line)
    assert not list(tmp_path.glob(".out.*"))


def test_commands_that_only_read_or_see_to_signals_themselves_end_by_them():
    assert not any(
        COMMANDS[name].leaves_drafts for name in ("run", "search", "search-worker", "top")
    )
    assert all(COMMANDS[name].leaves_drafts for name in ("export", "bundle", "prefetch"))
