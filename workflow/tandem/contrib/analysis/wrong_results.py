"""Stage `errors`: list queries whose top results contain no positive, and write a sheet of these for an annotator.

DuReader-retrieval §3.5 and Table 10: 100 queries of the development set whose top 5 contain no positive, 500 pairs in
all, each of one of eight types. A pair's type is guessed by comparing words. This saves an annotator typing, but is not
an annotation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.contrib.analysis.options import ErrorsParams
from tandem.data import tables
from tandem.data.collection import Collection, join_contents
from tandem.data.runs import iter_ranking
from tandem.data.splits import draw_subset
from tandem.errors import UserError
from tandem.evaluation.measures import Qrels, ScoredRanking, skip_excluded
from tandem.evaluation.scores import read_relevance
from tandem.extras.report.page import cut_text
from tandem.extras.spreadsheets import (
    CHARACTERS_PER_PASSAGE,
    escape_formula,
    join_lines,
    read_filled_rows,
    write_sheet,
)
from tandem.extras.words import Rarity, split_into_terms
from tandem.retrieval.inputs import require_dataset
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

ENTITY, NUMERAL, MODIFIER = "Entity mismatch", "Numeral mismatch", "Modifier mismatch"
SYNTACTIC, TYPO, OVERLAP = (
    "Syntactic mismatch",
    "Robustness on typos",
    "Over-sensitivity on term overlap",
)
FALSE_NEGATIVE, OTHER = "False negatives", "Others"
# Type → category, in the order of Table 10.
TYPES = dict.fromkeys((ENTITY, NUMERAL, MODIFIER), "Salient Phrase Mismatch")
TYPES |= {SYNTACTIC: "Syntactic mismatch", TYPO: "Other Challenges", OVERLAP: "Other Challenges"}
TYPES |= {FALSE_NEGATIVE: "Others", OTHER: "Others"}
# Short names that an annotator may write instead, in the same order.
_SHORT = (
    "entity",
    "numeral",
    "modifier",
    "syntactic",
    "typo",
    "overlap",
    "false negative",
    "other",
)
SHORT = dict(zip(_SHORT, TYPES, strict=True))
NEAR = 0.6  # least Jaccard similarity of words with a positive for a passage to say the same
_ABOUT_MOST_SHARE = 0.5  # least share of the query's weight for a passage to be about most of it
SHEET, PAIRS, SUMMARY = "sheet.csv", "pairs.parquet", "summary.json"
_TEXT_COLUMNS = ("query", "title", "passage", "positive", "why")
_ANNOTATOR_COLUMNS = ("type", "note")  # the annotator's columns
FILLED = ("query_id", "doc_id", "type")


class Wrong(NamedTuple):
    """A query without a positive among its first results."""

    query: str
    # the first results with their scores, best first; empty if the run lacks the query
    top: list[tuple[str, float]]
    # rank of each labelled positive in the run, None if the run lacks it; the best first
    positives: dict[str, int | None]


@dataclass(frozen=True)
class WrongResult:
    """A wrong result: a passage among a query's first results that is not a labelled positive."""

    query_id: str
    doc_id: str
    rank: int
    score: float
    query: str
    title: str
    passage: str
    positive: str  # the text of the best ranked labelled positive, empty if the corpus has none
    positive_rank: int | None  # in the run; None if the run lacks it
    guess: str  # a type of Table 10
    why: str  # the signal behind the guess


TYPES_OF = {"rank": pa.int32(), "positive_rank": pa.int32(), "score": pa.float64()}
PAIRS_SCHEMA = pa.schema(
    [(column.name, TYPES_OF.get(column.name, pa.string())) for column in fields(WrongResult)]
)


@dataclass(frozen=True)
class ErrorSummary:
    """Counts of a run's wrong queries; `percent` is their share of all queries, `guesses` counts pairs by type."""

    split: str
    run: str
    top: int
    queries: int
    without_positive: int
    percent: float
    sampled: int
    pairs: int
    guesses: dict[str, int]


def run(job: Job[ErrorsParams]) -> None:
    """Write sheet.csv (to fill in), pairs.parquet (the same, for programs) and summary.json.

    Inputs: dataset, run; match, if answers decide what is relevant.

    Raises:
        UserError: no wrong query has a result.
    """
    require_dataset(job, "run")
    params, artifact, collection = job.params, job.inputs["run"], Collection(job.inputs["dataset"])
    judged = read_relevance(job.inputs, params.split, [], params.ignore_identical_ids)
    ranked = skip_excluded(
        iter_ranking(artifact, collection.artifact), judged.qrels, params.ignore_identical_ids
    )
    wrong = {
        row.query: row
        for row in find_wrong_queries(ranked, params.top, judged.qrels, set(judged.queries))
    }
    shown = {query: params.split for query, row in wrong.items() if row.top}
    if not shown:
        raise UserError(
            _explain_nothing(artifact.folder, params.top, len(wrong), len(judged.queries))
        )
    sample = draw_subset(shown, {params.split: params.queries})
    rows = list(
        describe_wrong_results(
            [wrong[query] for query in sample], collection, collection.queries(params.split)
        )
    )
    guesses = Counter(row.guess for row in rows)
    summary = ErrorSummary(
        split=params.split,
        run=artifact.key,
        top=params.top,
        queries=len(judged.queries),
        without_positive=len(wrong),
        percent=round(100 * len(wrong) / len(judged.queries), 2),
        sampled=len(sample),
        pairs=len(rows),
        guesses={name: guesses[name] for name in TYPES},
    )
    with writing(job) as draft:
        pq.write_table(
            pa.Table.from_pylist(list(map(asdict, rows)), PAIRS_SCHEMA), draft.path(PAIRS)
        )
        # the same rows, one line each, with empty columns `type` and `note`
        write_sheet(
            draft.path(SHEET),
            [*PAIRS_SCHEMA.names, *_ANNOTATOR_COLUMNS],
            map(list_sheet_cells, rows),
        )
        write_json(draft.path(SUMMARY), asdict(summary))
        draft.facts |= {"queries": len(sample), "pairs": len(rows)}


def _explain_nothing(folder: Path, top: int, silent: int, queries: int) -> str:
    """Return the message that there is no wrong result; `silent` is the number of queries without any result."""
    if silent == queries:
        return (
            f"errors: none of the {queries:,} queries has a result in {folder}: "
            "there is nothing to look at; name another analysis.errors.system"
        )
    lower = f"a positive in the top {top} of {folder}; lower analysis.errors.top"
    if not silent:
        return f"errors: every query has {lower}"
    return (
        f"errors: there is nothing to look at: {silent:,} of {queries:,} queries have no result, "
        f"and all others have {lower}"
    )


def find_wrong_queries(
    run: Iterable[ScoredRanking], top: int, qrels: Qrels, queries: set[str]
) -> Iterator[Wrong]:
    """Yield the scored queries whose first `top` results contain no positive: first the run's, then those it lacks.

    The run contains only results that count.
    """
    lacking = set(queries)
    for query, docs, scores in run:
        if query not in queries:
            continue
        lacking.discard(query)
        ranked = list(zip(docs, scores.tolist(), strict=True))
        relevant = [doc for doc, value in qrels[query].items() if value > 0]
        ranks = {doc: rank for rank, (doc, _) in enumerate(ranked, 1)}
        best_first = sorted(relevant, key=lambda doc: (ranks.get(doc, len(ranks) + 1), doc))
        positives = {doc: ranks.get(doc) for doc in best_first}
        if not any(rank and rank <= top for rank in positives.values()):
            yield Wrong(query, ranked[:top], positives)
    for query in sorted(lacking):
        yield Wrong(query, [], {doc: None for doc, value in qrels[query].items() if value > 0})


def describe_wrong_results(
    wrong: list[Wrong], collection: Collection, queries: Mapping[str, str]
) -> Iterator[WrongResult]:
    """Yield the sheet's rows: each wrong result of the corpus with its guess, query after query, best first."""
    rarity = Rarity(collection, (queries[item.query] for item in wrong))
    texts = collection.texts(
        doc for item in wrong for doc in (*(doc for doc, _ in item.top), *item.positives)
    )
    for item in wrong:
        query = split_into_terms(queries[item.query])
        positives = {
            doc: set(split_into_terms(join_contents(*texts[doc])))
            for doc in item.positives
            if doc in texts
        }
        best = next(iter(positives), None)
        positive = (join_contents(*texts[best]), item.positives[best]) if best else ("", None)
        weights, corrections = rarity.weigh(query), rarity.correct(query)
        for rank, (doc, score) in enumerate(item.top, 1):
            if doc not in texts:  # a released run may name documents that the corpus lacks
                continue
            passage = split_into_terms(join_contents(*texts[doc]))
            guess, why = guess_type(
                WrongPair(query, passage, list(positives.values()), weights, corrections)
            )
            yield WrongResult(
                item.query,
                doc,
                rank,
                score,
                queries[item.query],
                *texts[doc],
                *positive,
                guess,
                why,
            )


def list_sheet_cells(row: WrongResult) -> list[object]:
    """Return the cells of a row on the sheet, with the annotator's columns empty."""
    cells = asdict(row) | {"score": f"{row.score:.6g}"} | dict.fromkeys(_ANNOTATOR_COLUMNS, "")
    cells |= {
        name: escape_formula(cut_text(join_lines(cells[name]), CHARACTERS_PER_PASSAGE))
        for name in _TEXT_COLUMNS
    }
    return ["" if cell is None else cell for cell in cells.values()]


def read_types(path: Path, errors: Artifact) -> list[str]:
    """Return the types that the annotator chose, from the answered rows of a filled sheet.

    A type is one of Table 10's (`Entity mismatch`) or its short name (`entity`), in any case.

    Raises:
        UserError: the file does not exist or is not CSV, a type is unknown, or a pair is not on the sheet or there
            twice.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled {SHEET}")
    open_pairs = set(tables.stream_rows(errors.path(PAIRS), "query_id", "doc_id"))
    known = {name.casefold(): name for name in TYPES} | SHORT
    types = []
    for number, (query, doc, value) in read_filled_rows(path, FILLED):
        if not value:
            continue
        if (query, doc) not in open_pairs:
            error = f"{path}:{number}: {doc} for query {query} is not, or twice, on the sheet of {errors.folder}"
            raise UserError(f"{error}; keep its rows and ids as they were")
        open_pairs.remove((query, doc))
        if value.casefold() not in known:
            raise UserError(
                f"{path}:{number}: type is {value[:40]!r}; allowed are {', '.join(SHORT)}, or nothing"
            )
        types.append(known[value.casefold()])
    return types


@dataclass(frozen=True)
class WrongPair:
    """The words of a query and of a passage ranked high for it, both in order, and of the query's positives."""

    query: list[str]
    passage: list[str]
    positives: list[set[str]] = field(default_factory=list)
    # content word → weight; rarer words weigh more
    weights: Mapping[str, float] = field(default_factory=dict)
    # query word that no passage contains → the similar word that was probably meant
    misspelt: Mapping[str, str] = field(default_factory=dict)


def guess_type(pair: WrongPair) -> tuple[str, str]:
    """Return the type (a key of TYPES) that the words suggest, and the reason; the first rule that holds decides."""
    words = set(pair.passage)
    if any(measure_jaccard(words, positive) >= NEAR for positive in pair.positives):
        return FALSE_NEGATIVE, "nearly the words of a labelled positive"

    # `b12` is a name, not a numeral
    query_numerals = {word for word in pair.query if word.isdecimal()}
    passage_numerals = {word for word in pair.passage if word.isdecimal()}
    missing_numerals = query_numerals - passage_numerals
    other_numerals = passage_numerals - query_numerals
    if missing_numerals and other_numerals:
        return NUMERAL, f"asks for {min(missing_numerals)}, tells {min(other_numerals)}"
    if pair.misspelt:
        return TYPO, ", ".join(f"{word} for {meant}?" for word, meant in pair.misspelt.items())

    salient = sorted(pair.weights, key=lambda word: (-pair.weights[word], pair.query.index(word)))
    missing = [word for word in salient if word not in words]
    if not salient:
        return OTHER, "the query has no rare word"
    if not missing and is_reordered(pair):
        return SYNTACTIC, "all words, mostly the other way round"
    if not missing:
        return OTHER, "all words"
    if salient[0] in missing:
        return ENTITY, f"no {salient[0]}"
    covered = sum(weight for word, weight in pair.weights.items() if word in words)
    if covered / sum(pair.weights.values()) < _ABOUT_MOST_SHARE:
        return OVERLAP, f"{salient[0]}, but neither {' nor '.join(missing)}"
    return MODIFIER, f"{salient[0]}, but not {', '.join(missing)}"


def measure_jaccard(left: set[str], right: set[str]) -> float:
    """Return |A ∩ B| / |A ∪ B|; 0 for two empty sets."""
    if not left and not right:
        return 0.0
    return len(left & right) / len(left | right)


def is_reordered(pair: WrongPair) -> bool:
    """Return whether most pairs of the query's content words occur in the opposite order in the passage."""
    words = [word for word in dict.fromkeys(pair.query) if word in pair.weights]
    pairs = list(combinations(map(pair.passage.index, words), 2))
    return sum(first > second for first, second in pairs) * 2 > len(pairs)
