"""The command `search`: a system's best passages for a query, with the scores of BM25, dual and cross-encoder."""

import json
import math
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

from tandem.contrib.demo.ranking import QueryAnswer, Session, answer_query
from tandem.contrib.demo.systems import (
    BM25,
    PART_COLUMNS,
    is_built,
    list_comparable_parts,
    list_needed_stages,
    list_parts,
    require_built,
    resolve_system,
)
from tandem.errors import UserError
from tandem.extras.targets import (
    Configuration,
    Configurations,
    choose_configuration,
    split_files,
)
from tandem.extras.words import LUCENE_STOP_WORDS
from tandem.plan.context import find_first_stage
from tandem.plan.graph import Stage
from tandem.stages.base import Json

_PROMPT = "query> "
NARROW, WIDE, LINES = 60, 140, 3  # fewest and most cells in a line; lines of a passage
_WORK_NAMES = ("BM25", "encode", "search", "re-rank", "total")
# Scripts without spaces: a pair of neighbouring characters is a term, as in Lucene's analyzers of Chinese and Japanese.
_UNSPACED_CHARACTERS = "぀-ヿ㐀-鿿豈-﫿"
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PIECE = re.compile(rf"[{_UNSPACED_CHARACTERS}]|[^\W_{_UNSPACED_CHARACTERS}]+")


def search_system(
    system: str,
    /,
    *words: str,
    k: Annotated[int, Parameter(validator=Number(gte=1))] = 10,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    alone: bool = False,
    dataset: str | None = None,
    configurations: Configurations = (),
) -> int:
    """Print a system's best passages for a query, with the scores of BM25, dual encoder and cross-encoder.

    Without a query, queries are read one after another: at a prompt on a terminal, else as lines of standard input.

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
            raise UserError(
                f'{len(names)} words are neither flag nor YAML file; say a system and "a query"'
            )
        if not all(name.strip() for name in names):
            raise UserError("the query is blank")
        system, *queries = names
        configuration = choose_configuration(configurations, files, "searched").on_dataset(dataset)
        with open_session(system, configuration, alone) as session:
            depth = find_fused_depth(session.run)
            if depth < k:
                print(
                    f"{system}: a fusion is {depth:g} deep; {depth:g} of {k} shown", file=sys.stderr
                )
            for query in queries or read_input():
                # an argument's bytes may not be UTF-8
                if text := query.encode(errors="replace").decode().strip():
                    result = answer_query(session, text, k)
                    if as_json:
                        print(render_answer_json(session, result), flush=True)
                    else:
                        print_ranked(session, result)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def open_session(system: str, configuration: Configuration, alone: bool) -> Session:
    """Open a search of a system: its own parts, and one built part of another system for each missing column."""
    plan = configuration.plan()
    run = resolve_system(plan, system)
    own = list({part.key: part for part in list_parts(run)}.values())
    require_built(list_needed_stages(run), system, configuration)
    # BM25 answers at once, while models take seconds to load
    lexical = all(part.column == BM25 for part in own)
    others = [] if alone or lexical else list_comparable_parts(plan, run)
    for other in others:
        if other.column not in [part.column for part in own] and all(
            map(is_built, other.needs.values())
        ):
            own.append(other)
    own.sort(key=lambda part: PART_COLUMNS.index(part.column))
    return Session(system, run, own, plan.split, plan.settings.plugins)


def find_fused_depth(run: Stage) -> float:
    """Return the depth of a run that is a fusion or re-ranks one; inf for any other run."""
    first = find_first_stage(run)
    return float(first.values["depth"]) if first.declared.scoring.by == "fusion" else math.inf


def read_input() -> Iterator[str]:
    """Yield queries from standard input, as they come."""
    if sys.stdin is None:  # closed by whoever started the command
        return
    if not sys.stdin.isatty():
        # some editors put a byte order mark in front of a file
        file, encoding = sys.stdin.fileno(), "utf-8-sig"
        with open(file, encoding=encoding, errors="replace", closefd=False) as lines:
            yield from lines
        return
    with suppress(ImportError):  # arrow keys and history, if Python supports them
        import readline  # noqa: F401
    with suppress(EOFError):
        while True:
            yield input(_PROMPT)


def print_ranked(session: Session, answer: QueryAnswer) -> None:
    """Print an answer for a person: a line of numbers and an excerpt per passage, then how long it took."""
    cells = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
    # NO_COLOR (https://no-color.org) turns off bold text too, and so does a pipe.
    console = Console(width=cells, color_system=None if os.environ.get("NO_COLOR") else "auto")
    lines = [*_list_passage_lines(session, answer, cells)]
    if answer.known:
        lines.append(Text(_describe_known_query(answer)))
    times = {"load": 1000 * session.loaded}
    times |= {
        work: answer.milliseconds[work] for work in _WORK_NAMES if work in answer.milliseconds
    }
    lines.append(Text(" · ".join(f"{work} {spent:,.0f} ms" for work, spent in times.items())))
    for line in [*lines, Text()]:
        console.print(line, soft_wrap=True)


def _list_passage_lines(session: Session, answer: QueryAnswer, cells: int) -> Iterator[Text]:
    """Yield a header, and for each passage a line of numbers and an excerpt."""
    labels = [part.label for part in session.parts]
    query_terms = list_query_terms(answer.query)
    longest = max((len(passage.doc_id) for passage in answer.passages), default=0)
    yield Text(
        f"{'rank':>4}  {'document':<{longest}}  {'  '.join(f'{label:>8}' for label in labels)}".rstrip()
    )

    for rank, passage in enumerate(answer.passages, start=1):
        numbers = []
        for label in labels:
            score = passage.scores[label]
            number = "–" if score is None else f"{score:.4f}"
            numbers.append(f"{number:>{max(8, len(label))}}")
        name = (f"{passage.doc_id:<{longest}}", "bold")
        yield Text.assemble(
            f"{rank:>4}{'✓' if passage.relevant else ' '} ", name, f"  {'  '.join(numbers)}"
        )

        whole = f"{passage.title} · {passage.text}" if passage.title else passage.text
        for line in cut_excerpt(whole, query_terms, cells - 6):
            yield Text("      ") + line
    if not answer.passages:
        yield Text("      nothing found")


def _describe_known_query(answer: QueryAnswer) -> str:
    """Describe the query's entry in the collection and its judgements."""
    known = answer.known
    assert known is not None
    if known.relevant is None:
        judged = "not judged"
    else:
        ranks = [
            str(rank) for rank, passage in enumerate(answer.passages, start=1) if passage.relevant
        ]
        place = f"at rank {', '.join(ranks)}" if ranks else "none of them here"
        judged = f"{len(known.relevant)} relevant (✓), {place}"
    return f"query {known.query} of the split {known.split}: {judged}"


def render_answer_json(session: Session, answer: QueryAnswer) -> str:
    """Return an answer as one line of JSON, with scores by the labels of their parts."""
    data: Json = {"system": session.system, "split": session.split, **asdict(answer)}
    if answer.known and answer.known.relevant is not None:
        data["known"]["relevant"] = sorted(answer.known.relevant)
    data["milliseconds"] = {name: round(spent, 2) for name, spent in answer.milliseconds.items()}
    data["load_seconds"] = round(session.loaded, 3)
    return json.dumps(data, ensure_ascii=False)


def find_pieces(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, case-folded) of each word, and of each character of a script without spaces."""
    for match in _PIECE.finditer(text):
        yield match.start(), match.end(), match[0].casefold()


def list_query_terms(query: str) -> set[str]:
    """Return a query's words without English stop words, and pairs of characters in scripts without spaces."""
    spans = list(find_pieces(query))
    words = {word for _, _, word in spans if not re.fullmatch(f"[{_UNSPACED_CHARACTERS}]", word)}
    pairs = set()
    for (_, end, left), (start, _, right) in pairwise(spans):
        if end == start and left not in words and right not in words:
            pairs.add(left + right)
    return (words - LUCENE_STOP_WORDS or words) | pairs


def cut_excerpt(text: str, query_terms: set[str], cells: int) -> list[Text]:
    """Return the part of a text that contains most terms, the first one if several do, in a few lines of `cells`.

    Terms are bold, and `…` marks omitted text. Parts begin at the text's start or shortly before a term. Control
    characters are removed, since a terminal would interpret them.
    """
    text = _CONTROL_CHARACTERS.sub("", " ".join(text.split()))
    room = LINES * (cells - 1)
    spans = list(find_pieces(text))
    for (start, middle, term), (next_start, end, next_term) in pairwise(list(spans)):
        if middle == next_start:  # pairs of characters may overlap
            spans.append((start, end, term + next_term))
    spans = sorted(span for span in spans if span[2] in query_terms)

    def count_terms(start: int) -> int:
        stop = start + len("".join(chop_cells(text[start : start + room], room)[:1]))
        return len({term for left, right, term in spans if start <= left and right <= stop})

    begin = 0
    if cell_len(text) > room:
        # start at the beginning of a word, about a quarter of the room before a term
        starts = [text.rfind(" ", 0, max(0, start - room // 4)) + 1 for start, _, _ in spans]
        begin = max([0, *starts], key=count_terms)
    styled = Text(text)
    for left, right, _ in spans:
        styled.stylize("bold", left, right)
    lines = (Text("…" if begin else "") + styled[begin:]).wrap(Console(), cells)
    if len(lines) > LINES:
        lines[LINES - 1].truncate(cells - 1)
        lines[LINES - 1].append("…")
    return list(lines[:LINES])
