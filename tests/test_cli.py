"""The command line: its help, its mistakes, and that stages start without it."""

import hashlib
import json
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
        (["gc", "mine.yaml"], "mine.yaml is not allowed here; flags: tandem gc --help"),
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


@pytest.mark.parametrize("command", ["datasets", "run -- --version"])
def test_a_reader_may_stop_reading(tmp_path, command):
    line = f"{sys.executable} -m tandem {command} | true"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
