"""The command `search`: a system's best passages for a query, with the scores of BM25, dual and cross-encoder."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated
from unicodedata import east_asian_width

from cyclopts import Parameter
from cyclopts.validators import Number

from tandem.errors import UserError
from tandem.extras.demo.ranking import Answer, Passage, Session, answer
from tandem.extras.demo.systems import COLUMNS, comparable_parts, is_built, needs, parts, require_built, resolve
from tandem.extras.operations.configurations import Configuration, split_files
from tandem.retrieval.lexical.bm25s import STOP_WORDS
from tandem.stages.base import Json

PROMPT = "query> "
NARROW, WIDE, LINES = 60, 140, 3  # cells of a line, and lines of a passage
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
WORK = ("BM25", "encode", "search", "re-rank", "total")
# Scripts without spaces: a pair of neighbouring characters is a term, as in Lucene's analyzers of Chinese and Japanese.
SOLID = "぀-ヿ㐀-鿿豈-﫿"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
PIECE = re.compile(rf"[{SOLID}]|[^\W_{SOLID}]+")


def search(
    system: str,
    /,
    *words: str,
    k: Annotated[int, Parameter(validator=Number(gte=1))] = 10,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    alone: Annotated[bool, Parameter(negative="")] = False,
    dataset: str | None = None,
) -> int:
    """Print a system's best passages for a query, with the scores of BM25, dual encoder and cross-encoder.

    Without a query, one after the other is read: by a prompt on a terminal, else a line each from standard input.

    Args:
        system: a run's expression, as in tables.
        words: "QUERY", one argument, and FILE.yaml … laid upon config/config.yaml, as Snakemake's `--configfile`.
        k: passages shown.
        as_json: print a line of JSON per query.
        alone: print only the scores of the system's own parts.
        dataset: instead of the configuration's `dataset`.
    """
    try:
        names, files = split_files([system, *words])
        if not 1 <= len(names) <= 2:
            raise UserError(f'{len(names)} words are neither flag nor YAML file; say a system and "a query"')
        if not all(name.strip() for name in names):
            raise UserError("the query is blank")
        system, *queries = names
        configuration = Configuration(files, [f"dataset={dataset}"] if dataset else [])
        with open_session(system, configuration, alone) as session:
            for query in queries or read_queries():
                text = query.encode(errors="replace").decode().strip()  # an argument's bytes may be no UTF-8
                if text:
                    result = answer(session, text, k)
                    print(answer_json(session, result) if as_json else answer_text(session, result), flush=True)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def open_session(system: str, configuration: Configuration, alone: bool) -> Session:
    """The search of a system: its own parts, and for comparison built parts of other systems, one a column."""
    plan = configuration.plan()
    requested = set(plan.stages)
    run = resolve(plan, system)
    own = list({part.key: part for part in parts(run)}.values())
    require_built(needs(run), requested, system, configuration)
    others = [] if alone else comparable_parts(plan, run)
    for column in COLUMNS:
        if not any(part.column == column for part in own):
            built = (part for part in others if part.column == column and is_built(part.needs.values()))
            own += [part for part in [next(built, None)] if part is not None]
    own.sort(key=lambda part: COLUMNS.index(part.column))
    return Session(system, run, own, plan.split)


def read_queries() -> Iterator[str]:
    """Queries from standard input, as they come."""
    if not sys.stdin.isatty():
        with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
            yield from lines
        return
    with suppress(ImportError):  # arrow keys and history, where Python has them
        import readline  # noqa: F401
    with suppress(EOFError):
        while True:
            yield input(PROMPT)


def answer_text(session: Session, answer: Answer) -> str:
    """An answer for a person: a line of numbers and an excerpt per passage, then how long it took."""
    cells = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
    labels = [part.label for part in session.parts]
    longest = max((len(passage.doc_id) for passage in answer.passages), default=0)
    head = f"{'rank':>4}  {'document':<{longest}}  {'  '.join(f'{label:>8}' for label in labels)}".rstrip()
    page, query_terms = [head], terms(answer.query)
    for rank, passage in enumerate(answer.passages, start=1):
        sign = "✓" if passage.relevant else " "
        numbers = "  ".join(f"{_number(passage.scores[label]):>{max(8, len(label))}}" for label in labels)
        page.append(f"{rank:>4}{sign} {bold(f'{passage.doc_id:<{longest}}')}  {numbers}")
        page += [f"      {marked(line, query_terms, bold)}" for line in _excerpt_lines(passage, query_terms, cells - 6)]
    if not answer.passages:
        page.append("      nothing found")
    times = [f"{work} {answer.milliseconds[work]:,.0f} ms" for work in WORK if work in answer.milliseconds]
    return "\n".join([*page, *_judgement(answer), " · ".join([f"load {1000 * session.loaded:,.0f} ms", *times]), ""])


def answer_json(session: Session, answer: Answer) -> str:
    """An answer as one line of JSON; scores by the labels of their parts."""
    data: Json = {"system": session.system, "split": session.split, **asdict(answer)}
    if answer.known and answer.known.relevant is not None:
        data["known"]["relevant"] = sorted(answer.known.relevant)
    data["milliseconds"] = {name: round(spent, 2) for name, spent in answer.milliseconds.items()}
    data["load_seconds"] = round(session.loaded, 3)
    return json.dumps(data, ensure_ascii=False)


def bold(text: str) -> str:
    """Text in bold on a terminal that may be written to in colours (https://no-color.org); plain text elsewhere."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"{BOLD}{text}{PLAIN}" if colours else text


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"


def _excerpt_lines(passage: Passage, query_terms: set[str], cells: int) -> list[str]:
    whole = f"{passage.title} · {passage.text}" if passage.title else passage.text
    broken = list(lines(excerpt(whole, query_terms, LINES * cells), cells))
    return broken[:LINES] if len(broken) <= LINES else [*broken[: LINES - 1], f"{broken[LINES - 1]}…"]


def _judgement(answer: Answer) -> list[str]:
    """What the collection knows about the query."""
    known = answer.known
    if known is None:
        return []
    name = f"query {known.query} of the split {known.split}"
    if known.relevant is None:
        return [f"{name}: not judged"]
    ranks = [str(rank) for rank, passage in enumerate(answer.passages, start=1) if passage.relevant]
    at = f"at rank {', '.join(ranks)}" if ranks else "none of them here"
    return [f"{name}: {len(known.relevant)} relevant (✓), {at}"]


def pieces(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, case-folded) of each word, and of each character of a script without spaces."""
    for match in PIECE.finditer(text):
        yield match.start(), match.end(), match[0].casefold()


def terms(query: str) -> set[str]:
    """A query's words, without English stop words (they would mark every line); pairs of characters without spaces."""
    spans = list(pieces(query))
    words = {word for _, _, word in spans if not _solid(word)}
    pairs = {a[2] + b[2] for a, b in pairwise(spans) if a[1] == b[0] and _solid(a[2]) and _solid(b[2])}
    return (words - STOP_WORDS or words) | pairs


def _solid(word: str) -> bool:
    return re.fullmatch(f"[{SOLID}]", word) is not None


def occurrences(text: str, query_terms: set[str]) -> list[tuple[int, int, str]]:
    """(start, end, term) of each term in a text, in order; pairs of characters may overlap."""
    spans = list(pieces(text))
    spans += [(a[0], b[1], a[2] + b[2]) for a, b in pairwise(spans) if a[1] == b[0]]
    return sorted(span for span in spans if span[2] in query_terms)


def excerpt(text: str, query_terms: set[str], cells: int) -> str:
    """The part of a text of about so many terminal cells that holds most of the terms, the first of several.

    What is left out is marked by `…`. Parts begin at the text's start or shortly before a term. Control characters,
    which a terminal would obey, are not shown.
    """
    text = CONTROL.sub("", " ".join(text.split()))
    if width(text) <= cells:
        return text
    spans = occurrences(text, query_terms)
    starts = [0, *(text.rfind(" ", 0, max(0, start - cells // 4)) + 1 for start, _, _ in spans)]
    best, most = 0, -1
    for start in dict.fromkeys(starts):
        stop = start + len(_cut(text[start:], cells - 2))
        count = len({term for left, right, term in spans if start <= left and right <= stop})
        if count > most:
            best, most = start, count
    part = _cut(text[best:], cells - 2)
    return f"{'…' if best else ''}{part}{'…' if best + len(part) < len(text) else ''}"


def lines(text: str, cells: int) -> Iterator[str]:
    """A text broken into lines of at most so many cells, between words where there are any."""
    while text:
        line = _cut(text, cells) or text[0]
        yield line.rstrip()
        text = text[len(line) :].lstrip()


def marked(text: str, query_terms: set[str], mark: Callable[[str], str]) -> str:
    """A text with its terms as `mark` writes them."""
    chunks, at = [], 0
    for start, end, _ in occurrences(text, query_terms):
        if end > at:
            chunks += [text[at : max(at, start)], mark(text[max(at, start) : end])]
            at = end
    return "".join([*chunks, text[at:]])


def width(text: str) -> int:
    """Cells of a terminal that a text takes: two for wide characters."""
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def _cut(text: str, cells: int) -> str:
    """The beginning of a text that fits, up to the end of a word unless a single one is longer."""
    taken = 0
    for at, character in enumerate(text):
        taken += width(character)
        if taken > cells:
            space = text.rfind(" ", 0, at + 1)
            return text[:space] if space > at // 2 else text[:at]
    return text
