"""The command `search`: a system's best passages for a query, with the scores of BM25, dual and cross-encoder."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from tandem.errors import UserError
from tandem.extras.demo.ranking import Answer, Session, answer
from tandem.extras.demo.systems import BM25, COLUMNS, comparable_parts, is_built, needs, parts, require_built, resolve
from tandem.extras.operations.targets import Configuration, dataset_override, split_files
from tandem.retrieval.lexical.bm25s import LUCENE_STOP_WORDS
from tandem.stages.base import Json

PROMPT = "query> "
NARROW, WIDE, LINES = 60, 140, 3  # cells of a line, and lines of a passage
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
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    alone: bool = False,
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
        configuration = Configuration(files, [dataset_override(dataset)] if dataset else [])
        with open_session(system, configuration, alone) as session:
            for query in queries or read_queries():
                if text := query.encode(errors="replace").decode().strip():  # an argument's bytes may be no UTF-8
                    result = answer(session, text, k)
                    if as_json:
                        print(answer_json(session, result), flush=True)
                    else:
                        print_answer(session, result)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def open_session(system: str, configuration: Configuration, alone: bool) -> Session:
    """The search of a system: its own parts, and for comparison built parts of other systems, one a column."""
    plan = configuration.plan()
    run = resolve(plan, system)
    own = list({part.key: part for part in parts(run)}.values())
    require_built(needs(run), system, configuration)
    lexical = all(part.column == BM25 for part in own)  # answers at once, where models take seconds to load
    others = [] if alone or lexical else comparable_parts(plan, run)
    for other in others:
        if other.column not in [part.column for part in own] and all(map(is_built, other.needs.values())):
            own.append(other)
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


def print_answer(session: Session, answer: Answer) -> None:
    """Print an answer for a person: a line of numbers and an excerpt per passage, then how long it took."""
    cells = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
    # NO_COLOR (https://no-color.org) turns off bold text too, and so does a pipe.
    console = Console(width=cells, color_system=None if os.environ.get("NO_COLOR") else "auto")
    labels, query_terms = [part.label for part in session.parts], terms(answer.query)
    longest = max((len(passage.doc_id) for passage in answer.passages), default=0)
    head = f"{'rank':>4}  {'document':<{longest}}  {'  '.join(f'{label:>8}' for label in labels)}".rstrip()
    page = [Text(head)]
    for rank, passage in enumerate(answer.passages, start=1):
        scores = [(passage.scores[label], max(8, len(label))) for label in labels]
        numbers = "  ".join(f"{'–' if score is None else f'{score:.4f}':>{width}}" for score, width in scores)
        name = (f"{passage.doc_id:<{longest}}", "bold")
        page.append(Text.assemble(f"{rank:>4}{'✓' if passage.relevant else ' '} ", name, f"  {numbers}"))
        whole = f"{passage.title} · {passage.text}" if passage.title else passage.text
        page += [Text("      ") + line for line in excerpt(whole, query_terms, cells - 6)]
    page += [Text("      nothing found")] if not answer.passages else []
    if known := answer.known:  # what the collection knows about the query
        ranks = [str(rank) for rank, passage in enumerate(answer.passages, start=1) if passage.relevant]
        at = f"at rank {', '.join(ranks)}" if ranks else "none of them here"
        judged = "not judged" if known.relevant is None else f"{len(known.relevant)} relevant (✓), {at}"
        page.append(Text(f"query {known.query} of the split {known.split}: {judged}"))
    times = {"load": 1000 * session.loaded} | {work: answer.milliseconds.get(work) for work in WORK}
    page.append(Text(" · ".join(f"{work} {spent:,.0f} ms" for work, spent in times.items() if spent is not None)))
    for line in [*page, Text()]:
        console.print(line, soft_wrap=True)


def answer_json(session: Session, answer: Answer) -> str:
    """An answer as one line of JSON; scores by the labels of their parts."""
    data: Json = {"system": session.system, "split": session.split, **asdict(answer)}
    if answer.known and answer.known.relevant is not None:
        data["known"]["relevant"] = sorted(answer.known.relevant)
    data["milliseconds"] = {name: round(spent, 2) for name, spent in answer.milliseconds.items()}
    data["load_seconds"] = round(session.loaded, 3)
    return json.dumps(data, ensure_ascii=False)


def pieces(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, case-folded) of each word, and of each character of a script without spaces."""
    for match in PIECE.finditer(text):
        yield match.start(), match.end(), match[0].casefold()


def terms(query: str) -> set[str]:
    """A query's words, without English stop words (they would mark every line); pairs of characters without spaces."""
    spans = list(pieces(query))
    words = {word for _, _, word in spans if not re.fullmatch(f"[{SOLID}]", word)}
    pairs = {a[2] + b[2] for a, b in pairwise(spans) if a[1] == b[0] and not words & {a[2], b[2]}}
    return (words - LUCENE_STOP_WORDS or words) | pairs


def excerpt(text: str, query_terms: set[str], cells: int) -> list[Text]:
    """The part of a text that holds most of the terms, the first of several, in a few lines of so many terminal cells.

    Terms are bold, and what is left out is marked by `…`. Parts begin at the text's start or shortly before a term.
    Control characters, which a terminal would obey, are not shown.
    """
    text, room = CONTROL.sub("", " ".join(text.split())), LINES * (cells - 1)
    spans = list(pieces(text))
    spans += [(a[0], b[1], a[2] + b[2]) for a, b in pairwise(spans) if a[1] == b[0]]  # characters' pairs may overlap
    spans = sorted(span for span in spans if span[2] in query_terms)

    def terms_from(start: int) -> int:
        stop = start + len("".join(chop_cells(text[start : start + room], room)[:1]))
        return len({term for left, right, term in spans if start <= left and right <= stop})

    starts = [text.rfind(" ", 0, max(0, at - room // 4)) + 1 for at, _, _ in spans]
    begin = 0 if cell_len(text) <= room else max([0, *starts], key=terms_from)
    styled = Text(text)
    for left, right, _ in spans:
        styled.stylize("bold", left, right)
    lines = (Text("…" if begin else "") + styled[begin:]).wrap(Console(), cells)
    if len(lines) > LINES:
        lines[LINES - 1].truncate(cells - 1)
        lines[LINES - 1].append("…")
    return list(lines[:LINES])
