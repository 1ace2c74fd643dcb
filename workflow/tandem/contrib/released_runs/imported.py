"""Import released runs as artifacts (stage `imported`), with another rule for ties than ours if they need it."""

from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.released_runs.options import ImportedParams
from tandem.contrib.released_runs.run_formats import RUN_FORMATS, RunLine, read_triples
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, index_passages
from tandem.data.runs import order_by_score
from tandem.data.validate import Warnings
from tandem.errors import UserError
from tandem.extras.absent_lines import write_whole_run
from tandem.extras.tied_scores import lower_ties
from tandem.extras.unchanged_files import require_unchanged
from tandem.store.files import fingerprint
from tandem.store.job import Job, writing

_PAIRS_PER_PIECE = 1 << 16  # scored pairs that are converted at once
# Reasons to drop a line.
_UNKNOWN_QUERY = "lines name queries that the split lacks"
_UNKNOWN_PASSAGE = "lines name passages that the corpus lacks"
_RANKS_STAY = "which keep their ranks where the run is scored"
_REPEATED = "lines name a passage of their query again"
_TIED = (
    "lines have a rank that their query has already, and stand in the order of their passages' ids"
)

_Ranking = tuple[str, list[str], list[float]]  # query id, passage ids, scores


def run_imported(job: Job[ImportedParams]) -> None:
    """Write the run from the file `job.execution.path` for the input `dataset`.

    Queries that the split lacks, and repeated mentions of a passage for a query, are dropped and counted. Passages that
    the corpus lacks are counted, too; they keep their ranks, as in trec_eval (`AbsentLines`).

    Raises:
        UserError: a line is malformed, a query's lines are not consecutive, no line names a passage of the corpus, or
            the file has changed since the stage was planned.
    """
    params = job.params
    path = Path(str(job.execution.path))
    collection = Collection(job.inputs["dataset"])
    queries = collection.queries(params.split)
    docs = index_passages(collection)
    dropped: Counter[str] = Counter({_UNKNOWN_QUERY: 0, _UNKNOWN_PASSAGE: 0, _REPEATED: 0})
    read = read_margin_mse if params.format == "margin_mse" else RUN_FORMATS[params.format]
    require_unchanged(path, params.fingerprint, fingerprint(path))
    with writing(job) as draft, Progress(f"imported {job.key}", 0, "queries") as progress:
        rankings = _rank_lines(read(path), queries, docs, params, dropped, progress)
        written = write_whole_run(job, draft, rankings, docs)
        require_unchanged(path, params.fingerprint, fingerprint(path))
        if not written:
            error = (
                f"{path}: holds no line about split {params.split} of {collection.artifact.folder}"
            )
            reasons = "; ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
            raise UserError(
                f"{error} ({reasons or 'it is empty'}); its ids must be those of the dataset"
            )

        warnings = Warnings(f"imported {job.key}")
        warnings.count(dropped.pop(_TIED, 0), _TIED)
        warnings.count(dropped.pop(_UNKNOWN_PASSAGE), f"{_UNKNOWN_PASSAGE}, {_RANKS_STAY}")
        for what, count in dropped.items():
            warnings.count(count, f"{what} and were dropped")
        missing = len(queries) - progress.done
        draft.facts.update(
            queries=progress.done,
            lines=written,
            without_run=missing,
            warnings=warnings.lines,
        )


def _rank_lines(
    lines: Iterator[RunLine],
    queries: dict[str, str],
    docs: IdRows,
    params: ImportedParams,
    dropped: Counter[str],
    progress: Progress,
) -> Iterator[_Ranking]:
    """Yield the best `depth` lines of each query of the split, each passage at its best place.

    Dropped lines are counted in `dropped`. Passages that the corpus lacks are yielded, and counted as
    `_UNKNOWN_PASSAGE`.
    """
    done: set[str] = set()
    for query, group in groupby(lines, key=itemgetter(0)):
        scored = list(group)
        if query in done:
            raise UserError(
                f"{scored[0][2]}: query {query} again; the lines of a query must stand together"
            )
        done.add(query)
        if query not in queries:
            dropped[_UNKNOWN_QUERY] += len(scored)
            continue
        ids = [doc for _, doc, _, _ in scored]
        scores = [score for _, _, _, score in scored]
        best: dict[str, float] = {}
        for doc, score in order_by_score(ids, scores, ties=params.ties):
            best.setdefault(doc, score)
        dropped[_UNKNOWN_PASSAGE] += int((docs.rows(list(best), missing_ok=True) < 0).sum())
        dropped[_REPEATED] += len(scored) - len(best)
        # equal scores are common, but equal ranks mean that the order was lost
        if params.format == "ranks":
            dropped[_TIED] += len(best) - len(set(best.values()))
        progress.add(1)
        top = list(lower_ties(best.items()))[: params.depth]  # without ties, the order stays
        yield query, [doc for doc, _ in top], [score for _, score in top]


def read_margin_mse(path: Path) -> Iterator[RunLine]:
    """Yield the pairs of triples as a run of the teacher that scored them: Margin-MSE (Hofstätter et al. 2020).

    A line is `positive's score`, `negative's score`, `query`, `positive`, `negative`, separated by tabs; lines may be
    in any order. A pair on several lines has the score of the first. The pairs of a query are yielded together, queries
    in the order of their first occurrence.

    Memory: about 30 bytes per line, and each id once.
    """
    queries: dict[str, int] = {}
    passages: dict[str, int] = {}
    keys = array("Q")
    scores = array("d")
    positives: set[int] = set()
    for query, positive, positive_score, negative, negative_score in read_triples(path):
        # A pair's key: its query's number in the upper 32 bits, its passage's number in the lower 32 bits.
        query_key = queries.setdefault(query, len(queries)) << 32
        for doc, score in ((positive, positive_score), (negative, negative_score)):
            key = query_key | passages.setdefault(doc, len(passages))
            if key not in positives:
                keys.append(key)
                scores.append(score)
            if doc is positive:
                positives.add(key)  # stored only once: a positive is on every line of its query

    pairs, first = np.unique(np.frombuffer(keys, np.uint64), return_index=True)
    all_scores = np.frombuffer(scores)
    query_ids = list(queries)
    doc_ids = list(passages)
    place = str(path)
    for start in range(0, len(pairs), _PAIRS_PER_PIECE):
        piece = slice(start, start + _PAIRS_PER_PIECE)
        for key, score in zip(
            pairs[piece].tolist(), all_scores[first[piece]].tolist(), strict=True
        ):
            yield query_ids[key >> 32], doc_ids[key & 0xFFFFFFFF], place, score
