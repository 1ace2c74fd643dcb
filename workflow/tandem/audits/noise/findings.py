"""The findings as lines of a table: what, where, how many, and what share."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HEADER = ("finding", "where", "count", "share")
Summary = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One line; the share (0 to 1) is None where there is no natural whole."""

    finding: str
    where: str
    count: int
    share: float | None


def findings(summary: Summary) -> Iterator[Finding]:
    """All findings of a summary, those that found nothing included."""
    yield from _corpus(summary["corpus"])
    for split, told in summary["splits"].items():
        yield from _split(split, told)
    for told in summary["repeated_queries"]:
        where, whole = f"{told['other']} in {told['split']}", summary["splits"][told["other"]]["queries"]
        yield _of("queries that another split asks too", where, told["queries"], whole)
    for told in summary["overlap"]:
        yield from _overlap(told, summary["splits"][told["split"]]["judged"])
    for run, told in summary["runs"].items():
        yield from _run(run, told)


def _of(finding: str, where: str, count: int, whole: int) -> Finding:
    return Finding(finding, where, count, count / whole if whole else None)


def _corpus(told: dict[str, int]) -> Iterator[Finding]:
    """Shares of all passages."""
    whole = told["passages"]
    yield _of("empty passages", "corpus", told["empty"], whole)
    yield Finding("texts that several passages have", "corpus", told["exact_groups"], None)
    yield _of("passages that have such a text", "corpus", told["exact_passages"], whole)
    yield Finding("pairs of near-duplicate texts", "corpus", told["near_pairs"], None)
    yield Finding("groups of duplicates and near-duplicates", "corpus", told["groups"], None)
    yield _of("passages in such a group", "corpus", told["group_passages"], whole)


def _split(split: str, told: dict[str, int]) -> Iterator[Finding]:
    """Shares of the queries, of those judged, or of the judgements."""
    yield _of("queries without judgement", split, told["unjudged"], told["queries"])
    yield _of("judged queries without a positive", split, told["without_positive"], told["judged"])
    yield _of("judgements of passages that the corpus lacks", split, told["unknown"], told["judgements"])
    yield _of("judged queries with a positive that the corpus lacks", split, told["missing"], told["judged"])
    yield _of("judged queries all of whose positives the corpus lacks", split, told["missing_all"], told["judged"])
    yield _of("queries asked more than once", split, told["repeated"], told["queries"])


def _overlap(told: dict[str, Any], judged: int) -> Iterator[Finding]:
    """Shares of the split's positives, and of its judged queries."""
    split, whole = told["split"], told["positives"]
    yield _of("positives that are positives of train", split, told["shared"], whole)
    yield _of("positives that have the text of a positive of train", split, told["exact"], whole)
    yield _of("positives that are near-duplicates of one of train", split, told["near"], whole)
    yield _of("judged queries with any of these positives", split, told["queries"], judged)


def _run(run: str, told: dict[str, Any]) -> Iterator[Finding]:
    """Shares: the hole rate (a mean over queries), then of the unjudged results, then of the queries."""
    for depth, at in told["depths"].items():
        yield Finding(f"unjudged in the top {depth}", run, at["unjudged"], at["hole"])
        yield _of(f"unjudged in the top {depth} with the text of a positive", run, at["exact"], at["unjudged"])
        yield _of(f"unjudged in the top {depth}, near-duplicates of a positive", run, at["near"], at["unjudged"])
        yield _of(f"queries with such a result in the top {depth}", run, at["queries"], told["queries"])


def csv_text(lines: Iterator[Finding]) -> str:
    """The table as CSV: shares from 0 to 1 with six decimals, empty where there is none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    for line in lines:
        share = "" if line.share is None else f"{line.share:.6f}"
        writer.writerow([line.finding, line.where, line.count, share])
    return file.getvalue()
