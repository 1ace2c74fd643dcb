"""TREC's markup: documents in SGML, and topics in SGML or XML."""

import html
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tandem.contrib.formats.roles import Role
from tandem.data.reading import LONGEST_LINE, JsonObject, iterate_lines
from tandem.errors import UserError
from tandem.extras.records import read_beginning

_DOC = re.compile(r"<(/?)DOC(\s[^<>]*)?>", re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<(TITLE|HEADLINE)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.IGNORECASE | re.DOTALL)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)  # XML's other way to write `<` and `&`
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)
_TOPIC = re.compile(r"<(/?)top(?:ic)?(\s[^<>]*)?>", re.IGNORECASE)
_TOPIC_ID = re.compile(r"\b(?:number|num|id)\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_INLINE = r"(?:b|i|em|p|br|strong|su[bp]|u)\b"  # tags inside a field
# A field ends where the next one begins or its own tag ends; fields in TREC's topics have no end tag.
_FIELD = re.compile(
    rf"<(?!{_INLINE})([a-z][\w-]*)[^<>]*>(.*?)(?=</?(?!{_INLINE})[a-z]|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_ID_TAGS = ("num", "number", "identifier", "id")
_TEXT_TAGS = ("title", "query", "question", "desc", "description", "summary")
_LABEL = re.compile(r"^(topic|description)\s*:\s*", re.IGNORECASE)


def read_trec(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line` of its <DOC>, id, title and text) of each document `<DOC> <DOCNO>id</DOCNO> … </DOC>` of TREC.

    The title is `<TITLE>` or `<HEADLINE>`. The text is all of `<TEXT>`, or without one everything except id and title.
    Tags inside and white space become one space, and character references their characters. Text between documents is
    left out.
    """
    elements = _iterate_elements(path, _DOC, "DOC", "document")
    for start, _, raw in islice(elements, skipped, None):
        where = f"{path}:{start}"
        docno = _DOCNO.search(raw)
        if docno is None:
            raise UserError(f"{where}: document without <DOCNO>; give it one")

        title = _TITLE.search(raw)
        texts = _TEXT.findall(raw)
        if not texts:
            without_id = _DOCNO.sub(" ", raw)
            texts = [_TITLE.sub(" ", without_id)]
        yield (
            where,
            {
                "id": docno[1].strip(),
                "title": _strip_markup(title[2]) if title else "",
                "text": _strip_markup("\n".join(texts)),
            },
        )


def is_topics(path: Path) -> bool:
    """Return whether a file holds TREC's topics, judged by its beginning."""
    start = read_beginning(path)
    return start.startswith(b"<") and _TOPIC.search(start.decode(errors="replace")) is not None


def read_topics(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line` of its tag, id and text) of each topic, `<top> … </top>` or in XML `<topic> … </topic>`.

    The id is `<num>` or an attribute of the tag. The text is the title, as in runs by titles only; without a title it
    is the query, question, description or summary, or all of the topic. TREC's labels (`Number: 301`) are left out.
    """
    elements = _iterate_elements(path, _TOPIC, "top", "topic")
    for start, attributes, raw in islice(elements, skipped, None):
        fields: dict[str, str] = {}
        for tag, content in _FIELD.findall(raw):
            fields.setdefault(tag.lower(), _strip_markup(content))

        number = _choose_field(fields, _ID_TAGS)
        attribute = _TOPIC_ID.search(attributes)
        if not number and attribute:
            number = attribute[1]
        label, _, rest = number.partition(":")
        # TREC pads numbers with zeros in the topics, but not in the judgements; a number of only zeros is one zero
        if label.strip().lower() == "number":
            number = rest.strip().lstrip("0") or rest.strip()[-1:]
        if not number:
            raise UserError(f"{path}:{start}: topic without <num>; give it one")

        text = _choose_field(fields, _TEXT_TAGS) or _strip_markup(raw)
        yield f"{path}:{start}", {"id": number, "text": _LABEL.sub("", text)}


def _choose_field(fields: dict[str, str], names: Sequence[str]) -> str:
    """Return the first non-empty field among some names; empty without one."""
    for name in names:
        if fields.get(name):
            return fields[name]
    return ""


def _iterate_elements(
    path: Path, tags: re.Pattern[str], name: str, what: str
) -> Iterator[tuple[int, str, str]]:
    """Yield (line of its tag, the tag's attributes, the content up to its end) of each element.

    Args:
        tags: matches a tag at its beginning or end; groups: the slash of an end tag, attributes.
        name, what: names of the tag and of the element, for errors.
    """
    start = 0  # the line of the open element's tag; 0 between elements
    attributes = ""
    size = 0
    parts: list[str] = []
    for number, line in iterate_lines(path):
        done = 0  # characters of the line that are processed
        for tag in tags.finditer(line):
            closes = bool(tag[1])
            if closes and not start:
                raise UserError(
                    f"{path}:{number}: </{name}> without <{name}>; a {what} is <{name}> … </{name}>"
                )
            if not closes and start:
                inside = f"<{name}> inside the {what} of line {start}"
                raise UserError(f"{path}:{number}: {inside}; end that with </{name}>")

            if closes:
                parts.append(line[done : tag.start()])
                yield start, attributes, _CDATA.sub(r"\1", "\n".join(parts))
                start = 0
            else:
                start = number
                attributes = tag[2] or ""
            size = 0
            parts = []
            done = tag.end()
        if start:
            parts.append(line[done:])
            size += len(line) - done
            if size > LONGEST_LINE:
                raise UserError(
                    f"{path}:{start}: a {what} beyond {LONGEST_LINE >> 20} MiB; end it with </{name}>"
                )
    if start:
        where = f"{path}:{start}: no </{name}> up to the end of the file"
        raise UserError(f"{where}; end the {what} or fetch the file again")


def _strip_markup(marked: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", marked)).split())
