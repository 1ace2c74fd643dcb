"""The command `search`: a system's best passages for a query, with the scores of BM25, dual and cross-encoder."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from tandem.errors import UserError
from tandem.searching import words as command_line
from tandem.searching.answer import answer
from tandem.searching.built import is_built, require_built
from tandem.searching.session import Session
from tandem.searching.show import as_json, shown
from tandem.searching.systems import COLUMNS, beside, needs, parts, resolve

PASSAGES = 10
PROMPT = "query> "


def main(words: list[str]) -> int:
    """`search SYSTEM ["QUERY"] [FILE.yaml …] [--k 10] [--json] [--alone] [--dataset NAME]`.

    Without a query, one after the other is read: by a prompt on a terminal, else a line each from standard input.

    Args:
        words: SYSTEM is a run's expression, as in tables; YAML files are laid upon config/config.yaml, as Snakemake's
            `--configfile`; `--k` how many passages are shown; `--json` a line of JSON per query; `--alone` only the
            scores of the system's own parts; `--dataset` another `dataset` than the configuration's.
    """
    try:
        told = command_line.read(words, ("--k", "--dataset"), ("--json", "--alone"))
        if not 1 <= len(told.names) <= 2:
            raise UserError(f'{len(told.names)} words are neither flag nor YAML file; say a system and "a query"')
        system, count = told.names[0], told.count("--k", PASSAGES)
        if not all(word.strip() for word in told.names):
            raise UserError("the query is blank")
        queries = iter(told.names[1:]) if told.names[1:] else _asked()
        with opened(system, told) as session:
            for query in queries:
                text = query.encode(errors="replace").decode().strip()  # an argument's bytes may be no UTF-8
                if not text:
                    continue
                made = answer(session, text, count)
                print(as_json(session, made) if "--json" in told.switches else shown(session, made), flush=True)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def opened(system: str, told: command_line.Words) -> Session:
    """The search of a system: its own parts, and those that are built of others, one a column, for comparison."""
    plan = told.plan()
    wanted = set(plan.stages)
    run = resolve(plan, system)
    own = list({part.key: part for part in parts(run)}.values())
    require_built(needs(run), wanted, system, told)
    more = [] if "--alone" in told.switches else beside(plan, run)
    for column in COLUMNS:
        if not any(part.column == column for part in own):
            there = (part for part in more if part.column == column and is_built(part.needs.values()))
            own += [part for part in [next(there, None)] if part is not None]
    own.sort(key=lambda part: COLUMNS.index(part.column))
    return Session(system, run, own, plan.split)


def _asked() -> Iterator[str]:
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
