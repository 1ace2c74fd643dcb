"""Answers as text for a terminal and as JSON."""

import json
import os
import shutil
import sys
from dataclasses import asdict
from typing import Any

from tandem.searching.answer import Answer, Passage
from tandem.searching.highlight import excerpt, lines, marked, terms
from tandem.searching.session import Session

NARROW, WIDE, LINES = 60, 140, 3  # cells of a line, and lines of a passage
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
WORK = ("BM25", "encode", "search", "re-rank", "total")


def bold(text: str) -> str:
    """Text in bold on a terminal that may be written to in colours (https://no-color.org); plain text elsewhere."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"{BOLD}{text}{PLAIN}" if colours else text


def shown(session: Session, answer: Answer) -> str:
    """An answer for a person: a line of numbers and an excerpt per passage, then how long it took."""
    cells = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
    labels = [part.label for part in session.parts]
    longest = max((len(one.doc_id) for one in answer.passages), default=0)
    made = [f"{'rank':>4}  {'document':<{longest}}  {'  '.join(f'{label:>8}' for label in labels)}".rstrip()]
    wanted = terms(answer.query)
    for rank, passage in enumerate(answer.passages, start=1):
        sign = "✓" if passage.relevant else " "
        numbers = "  ".join(f"{_number(passage.scores[label]):>{max(8, len(label))}}" for label in labels)
        made.append(f"{rank:>4}{sign} {bold(f'{passage.doc_id:<{longest}}')}  {numbers}")
        made += [f"      {marked(line, wanted, bold)}" for line in _text(passage, wanted, cells - 6)]
    if not answer.passages:
        made.append("      nothing found")
    return "\n".join([*made, *_judged(answer), _times(session, answer), ""])


def as_json(session: Session, answer: Answer) -> str:
    """An answer as one line of JSON; scores by the labels of their parts."""
    told: dict[str, Any] = {"system": session.system, "split": session.split, **asdict(answer)}
    told["known"] = answer.known and {
        "query": answer.known.query,
        "split": answer.known.split,
        "relevant": None if answer.known.relevant is None else sorted(answer.known.relevant),
    }
    told["milliseconds"] = {name: round(spent, 2) for name, spent in answer.milliseconds.items()}
    told["load_seconds"] = round(session.loaded, 3)
    return json.dumps(told, ensure_ascii=False)


def _text(passage: Passage, wanted: set[str], cells: int) -> list[str]:
    """An excerpt of a passage, title first, in a few lines."""
    whole = f"{passage.title} · {passage.text}" if passage.title else passage.text
    made = list(lines(excerpt(whole, wanted, LINES * cells), cells))
    return made[:LINES] if len(made) <= LINES else [*made[: LINES - 1], f"{made[LINES - 1]}…"]


def _number(score: float | None) -> str:
    """A score with four digits behind the point, `–` where there is none."""
    return "–" if score is None else f"{score:.4f}"


def _judged(answer: Answer) -> list[str]:
    """What the collection knows about the query."""
    known = answer.known
    if known is None:
        return []
    named = f"query {known.query} of the split {known.split}"
    if known.relevant is None:
        return [f"{named}: not judged"]
    ranks = [str(rank) for rank, passage in enumerate(answer.passages, start=1) if passage.relevant]
    at = f"at rank {', '.join(ranks)}" if ranks else "none of them here"
    return [f"{named}: {len(known.relevant)} relevant (✓), {at}"]


def _times(session: Session, answer: Answer) -> str:
    """How long what took."""
    spent = [f"{work} {answer.milliseconds[work]:,.0f} ms" for work in WORK if work in answer.milliseconds]
    return " · ".join([f"load {1000 * session.loaded:,.0f} ms", *spent])
