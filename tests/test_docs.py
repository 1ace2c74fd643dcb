"""What README and the pages of docs/ promise: links, code blocks that are run or say why not, targets that exist."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
import yaml
from doc_pages import FOLLOWED, RECORDED, ROOT, TUTORIAL, blocks
from snakemake.cli import get_argument_parser
from tiny_project import run_here, snakemake

from tandem.cli import app
from tandem.commands import COMMANDS
from tandem.extras.running.command import read_request
from tandem.extras.targets import Configuration, read_configurations
from tandem.store.job import load

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_links_to_what_exists():
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text())
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_pages_that_code_and_comments_name_exist():
    folders = ("config", "envs", "examples", "tests", "workflow", ".ci", ".github")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix not in (".md", ".pyc")
    ]
    files += [ROOT / name for name in ("Makefile", "Snakefile", "pyproject.toml", "mkdocs.yml")]
    named = {}
    for path in filter(Path.is_file, files):
        pages = re.findall(r"\bdocs/[\w./-]+\.md\b", path.read_text(errors="replace"))
        named |= dict.fromkeys(pages, path.relative_to(ROOT))
    assert len(named) > 10
    assert {page: path for page, path in named.items() if not (ROOT / page).is_file()} == {}


def test_every_page_of_the_tutorial_and_the_how_to_is_followed():
    pages = [
        page for folder in ("tutorial", "how_to") for page in (ROOT / "docs" / folder).rglob("*.md")
    ]
    assert sorted(pages) == sorted(FOLLOWED)  # by tests/test_docs_dag.py


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_block_is_a_file_or_commands_or_says_why_it_is_not_run(page):
    listed = [block for block in blocks(page) if block.language != RECORDED]
    assert listed
    assert [
        block.body
        for block in listed
        if not block.reason and (block.language == "sh") == bool(block.title)
    ] == []
    instead = re.findall(r"`(tests/[^`]+)`", " ".join(block.reason for block in listed))
    assert [path for path in instead if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_no_block_of_a_page_is_overlooked(page):
    """Every fence belongs to a block that is followed, and only the tutorial has recorded output, which is compared."""
    fences = re.findall(r"^[ >]*(?:```|~~~)", page.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))
    assert page in TUTORIAL or all(block.language != RECORDED for block in blocks(page))


def test_every_target_that_a_command_names_exists(tmp_path):
    # lines of blocks, and code in a sentence
    command = re.compile(r"^snakemake .*|(?<=`)snakemake [^`]+(?=`)", re.MULTILINE)
    lines = [line for page in PAGES for line in command.findall(page.read_text())]
    lines = [line for line in lines if " -s " not in line]  # another Snakefile's
    words = [shlex.split(line.replace("…", "any/thing"), comments=True)[1:] for line in lines]
    targets = {
        target
        for line in words
        for target in get_argument_parser().parse_known_args(line)[0].targets
    }
    targets = {
        target for target in targets if "/" not in target and not target.startswith("sweep_")
    }
    (tmp_path / "config.yaml").write_text("{}")
    status, output = run_here(snakemake(tmp_path, ["--list-rules"]))
    assert status == 0, output
    assert len(targets) > 10
    assert targets - set(output.split()) == set()


WRITTEN = [page for page in PAGES if page.parent.name != "reference"]  # those there are usages
LINES = [
    line
    for page in WRITTEN
    for line in re.findall(r"^tandem [a-z].*", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("line", dict.fromkeys(line for line in LINES if "…" not in line))
def test_every_command_has_the_flags_that_a_page_gives_it(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *words = [
        word for word in shlex.split(re.split(" [|<] ", line)[0], comments=True)[1:] if word != "\\"
    ]
    for word in words:
        if word.endswith(".yaml"):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).write_text("{}")
    if name == "run":
        targets = {target for target in read_request(words).targets if "/" not in target}
        assert targets <= Configuration().plan().targets().keys()
    elif not COMMANDS[name].takes_words:
        takes_configurations = (
            "configurations" in inspect.signature(load(COMMANDS[name].entry)).parameters
        )
        rest = read_configurations(words)[1] if takes_configurations else words
        app(name).parse_args([name, *rest], print_error=False, exit_on_error=False)


def test_every_promise_has_a_test_that_is_there():
    commands = re.findall(r"`pytest (\S+)(?: -k ([^`]+))?`", (ROOT / "README.md").read_text())
    assert len(commands) > 5
    for path, words in commands:
        files = (
            sorted((ROOT / path).rglob("test_*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        )
        names = " ".join(
            name
            for file in files
            for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
        )
        assert [word for word in words.strip('"').split(" or ") if word not in names] == []


def test_every_slow_test_is_there():
    for line in (ROOT / "tests/slow.txt").read_text().splitlines():
        path, _, name = line.partition("::")
        assert f"\ndef {name.rstrip('[') or 'test_'}" in (ROOT / path).read_text(), line


def test_the_page_about_config_names_every_folder():
    page = (ROOT / "config/README.md").read_text()
    folders = {path.name for path in (ROOT / "config").iterdir() if path.is_dir()}
    assert folders == {
        name.removesuffix("/") for name in re.findall(r"`(\w+/)`", page.partition("| folder")[2])
    }


def test_snakemakes_catalogue_finds_what_it_looks_for():
    """Main file, rules, configuration, words of the readme, and the keys that it reads."""
    for name in ("workflow/Snakefile", "config/README.md", "config/config.yaml"):
        assert (ROOT / name).is_file()
    assert list((ROOT / "workflow/rules").glob("*.smk"))
    assert {"snakemake", "workflow"} <= set(
        re.findall(r"\w+", (ROOT / "README.md").read_text().lower())
    )
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert {"conda", "apptainer", "apptainer+conda", "report"} == set(
        usage["software-stack-deployment"]
    )


def test_snakemakes_catalogue_gives_flags_that_snakemake_takes():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    words = shlex.split(usage["mandatory-flags"]["flags"])
    options = get_argument_parser().parse_args(words)
    assert {trigger.name for trigger in options.rerun_triggers} == {"MTIME", "PARAMS"}
