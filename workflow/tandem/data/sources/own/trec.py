"""TREC's SGML: `<DOC> <DOCNO>id</DOCNO> … </DOC>`, streamed document by document.

The title is `<TITLE>` or `<HEADLINE>`, the text all of `<TEXT>`, or without one all that is neither id nor title. Tags
inside become spaces, character references their characters, and runs of white space one space.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.reading import LONGEST, lines
from tandem.data.sources.own.roles import Role
from tandem.errors import UserError

DOC = re.compile(r"<(/?)DOC>", re.IGNORECASE)
DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.IGNORECASE | re.DOTALL)
TITLE = re.compile(r"<(TITLE|HEADLINE)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line` of its <DOC>, id, title and text) of each document; what stands between documents is left out."""
    for start, raw in _documents(path):
        yield f"{path}:{start}", _record(f"{path}:{start}", raw)


def _documents(path: Path) -> Iterator[tuple[int, str]]:
    """(line of its <DOC>, what stands up to its </DOC>) of each document."""
    start, size, parts = 0, 0, list[str]()
    for number, line in lines(path):
        at = 0
        for tag in DOC.finditer(line):
            closes = bool(tag[1])
            if closes and not start:
                raise UserError(f"{path}:{number}: </DOC> without <DOC>; a document is <DOC> … </DOC>")
            if not closes and start:
                raise UserError(f"{path}:{number}: <DOC> inside the document of line {start}; end that with </DOC>")
            if closes:
                yield start, "\n".join([*parts, line[at : tag.start()]])
            start, size, parts = (0 if closes else number), 0, []
            at = tag.end()
        if start:
            parts.append(line[at:])
            size += len(line) - at
            if size > LONGEST:
                raise UserError(f"{path}:{start}: a document beyond {LONGEST >> 20} MiB; end it with </DOC>")
    if start:
        raise UserError(
            f"{path}:{start}: no </DOC> up to the end of the file; end the document or fetch the file again"
        )


def _record(where: str, raw: str) -> dict[str, str]:
    """Id, title and text of what stands between <DOC> and </DOC>."""
    named = DOCNO.search(raw)
    if named is None:
        raise UserError(f"{where}: document without <DOCNO>; give it one")
    titled = TITLE.search(raw)
    texts = TEXT.findall(raw)
    if not texts:
        texts = [TITLE.sub(" ", DOCNO.sub(" ", raw))]
    return {"id": named[1].strip(), "title": _plain(titled[2]) if titled else "", "text": _plain("\n".join(texts))}


def _plain(marked: str) -> str:
    """Text without tags and character references."""
    return " ".join(html.unescape(TAG.sub(" ", marked)).split())
