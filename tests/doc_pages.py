"""The pages of docs/ that are followed to the letter, as blocks of code."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TUTORIAL = [ROOT / f"docs/tutorial/{name}.md" for name in ("own_data", "own_recipe", "own_loss")]
RECORDED = "text"  # the language of a block that shows what commands print
HOW_TO = sorted((ROOT / "docs/how_to").glob("*.md"))
FOLLOWED = [*TUTORIAL, *HOW_TO]
BLOCK = re.compile(
    r'(?:^\*(Not run by [^*]+)\*\n)?^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block of code: `reason` says why it is not run, `title` is the file that it is."""

    reason: str
    language: str
    title: str
    body: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order; commands are `sh`, files have a title, recorded output is `text`."""
    return [Block(*groups) for groups in BLOCK.findall(page.read_text())]
