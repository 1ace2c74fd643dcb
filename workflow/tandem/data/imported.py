"""The stage `imported`: a run that somebody released, checked against a dataset, in this project's format.

Formats: `trec` (`query Q0 passage rank score tag`), ordered by score; `ranks` (`query`, `passage`, `rank` and perhaps
`score`, by tabs: MS MARCO's and RocketQA's), ordered by rank: their reference scripts measure by rank, and equal scores
would change it. The score of such a line becomes minus its rank; its own score is left out. `margin_mse`: triples with
a teacher's scores (`triples.py`), ordered by score.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.reading import fields, lines, number, whole
from tandem.data.rows import doc_rows
from tandem.data.runs import ranked_order, write_run
from tandem.data.triples import scored_triples
from tandem.data.warnings import Warnings
from tandem.errors import UserError
from tandem.store.job import Job, writing

Line = tuple[str, str, str, float]  # query id, passage id, place for errors, score
# What may be wrong with a line that is dropped.
QUERY = "lines name queries that the split lacks"
PASSAGE = "lines name passages that the corpus lacks"
AGAIN = "lines name a passage of their query again"


def run(job: Job) -> None:
    """Write run.trec from the file that `path` of `job.execution` names, for the input `dataset`.

    Parameters: `format` (of `FORMATS`), `split`, `depth` (passages kept of a query). Dropped and counted: queries
    that the split lacks, passages that the corpus lacks, and a passage's later mentions for a query.

    Raises:
        UserError: a malformed line, a query whose lines are not together, or nothing left.
    """
    path, split = Path(str(job.execution.path)), job.params["split"]
    read = FORMATS.get(job.params["format"])
    if read is None:
        raise UserError(f"format: {job.params['format']!r}; allowed are {', '.join(FORMATS)}")
    collection = Collection(job.inputs["dataset"])
    imported = Imported(collection, split, job.params["depth"])
    with writing(job) as draft, Progress(f"imported {job.key}", 0, "queries") as progress:
        written = write_run(draft.path("run.trec"), imported.queries(read(path), progress), job.key)
        if not written:
            found = f"{path}: holds no line about split {split} of {collection.artifact.folder}"
            raise UserError(f"{found} ({imported.told()}); its ids must be those of the dataset")
        warnings = Warnings(job.key)
        for what, count in imported.dropped.items():
            warnings.count(count, f"{what} and were dropped")
        missing = len(imported.wanted) - progress.done
        draft.facts.update(queries=progress.done, lines=written, without_run=missing, warnings=warnings.lines)


class Imported:
    """What is kept of a released run, and how much is not.

    Attributes:
        wanted: the split's queries.
        dropped: what was wrong with lines → their number.
    """

    def __init__(self, collection: Collection, split: str, depth: int) -> None:
        self.wanted, self.depth = collection.queries(split), depth
        self._docs = doc_rows(collection)
        self.dropped = dict.fromkeys((QUERY, PASSAGE, AGAIN), 0)

    def told(self) -> str:
        """What was dropped, for an error."""
        return "; ".join(f"{count:,} {what}" for what, count in self.dropped.items() if count) or "it is empty"

    def queries(self, found: Iterator[Line], progress: Progress) -> Iterator[tuple[str, list[str], list[float]]]:
        """(query id, passage ids, scores) of each query of the split, its best `depth`."""
        done: set[str] = set()
        for query, group in groupby(found, key=itemgetter(0)):
            scored = list(group)
            if query in done:
                raise UserError(f"{scored[0][2]}: query {query} again; the lines of a query must stand together")
            done.add(query)
            if query not in self.wanted:
                self.dropped[QUERY] += len(scored)
            elif ranked := self._ranked(scored):
                progress.add(1)
                yield query, [doc for doc, _ in ranked], [score for _, score in ranked]

    def _ranked(self, scored: list[Line]) -> list[tuple[str, float]]:
        """A query's known passages, each where it stands best, cut to the depth."""
        there = self._docs.rows([doc for _, doc, _, _ in scored], missing_ok=True) >= 0
        known = [(doc, score) for (_, doc, _, score), is_there in zip(scored, there, strict=True) if is_there]
        best: dict[str, float] = {}
        for doc, score in ranked_order([doc for doc, _ in known], [score for _, score in known]):
            best.setdefault(doc, score)
        self.dropped[PASSAGE] += len(scored) - len(known)
        self.dropped[AGAIN] += len(known) - len(best)
        return list(best.items())[: self.depth]


def _trec(path: Path) -> Iterator[Line]:
    """The lines of a run in TREC's format."""
    for at, line in lines(path):
        where, columns = f"{path}:{at}", line.split()
        if len(columns) != 6:
            raise UserError(f"{where}: {line[:60]!r} is no run line; it is `query Q0 passage rank score tag`")
        yield columns[0], columns[2], where, number(where, "score", columns[4])


def _ranks(path: Path) -> Iterator[Line]:
    """The lines of a run of ranks, with scores or without."""
    for where, columns in fields(path, "query id, passage id, rank and perhaps score", 3, 4):
        if len(columns) == 4:
            number(where, "score", columns[3])
        yield columns[0], columns[1], where, -float(whole(where, "rank", columns[2]))


FORMATS: dict[str, Callable[[Path], Iterator[Line]]] = {"trec": _trec, "ranks": _ranks, "margin_mse": scored_triples}
