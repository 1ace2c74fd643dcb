"""What README and the pages of docs/ promise: links, code blocks that are run or say why not, targets that exist."""

import re
import shlex

import pytest
from doc_pages import FOLLOWED, ROOT, blocks
from snakemake.cli import get_argument_parser
from tiny_project import said, snakemake

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_links_to_what_exists():
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text())
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_block_is_a_file_or_commands_or_says_why_it_is_not_run(page):
    listed = blocks(page)
    assert listed
    assert [block.body for block in listed if not block.reason and (block.language == "sh") == bool(block.title)] == []


def test_every_target_that_a_command_names_exists(tmp_path):
    lines = [line for page in PAGES for line in re.findall(r"^snakemake .*", page.read_text(), re.MULTILINE)]
    words = [shlex.split(line.replace("…", ""), comments=True)[1:] for line in lines]
    targets = {target for line in words for target in get_argument_parser().parse_known_args(line)[0].targets}
    targets = {target for target in targets if "/" not in target and not target.startswith("sweep_")}
    (tmp_path / "config.yaml").write_text("{}")
    status, output = said(snakemake(tmp_path, ["--list-rules"]))
    assert status == 0, output
    assert len(targets) > 10
    assert targets - set(output.split()) == set()
