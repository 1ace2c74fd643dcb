"""Read a dataset artifact: stream its passages, and look up queries and qrels by split."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.data.tables import iterate_rows, open_parquet, stream_rows
from tandem.errors import UserError
from tandem.store.artifact import Artifact

CORPUS = "corpus.parquet"
QUERIES = "queries.parquet"
QRELS = "qrels.parquet"
# Relevance of a training passage that only holds the answer's words, or is a window of a relevant document whose label
# another window carries. It is neither a positive nor, as in RocketQA, a negative. Some collections use -1 for
# irrelevant passages.
LITERAL_MATCH = -2
# Relevance of a passage that does not count for a query at all: it is left out of the query's results before these are
# scored, and is never a negative. ir_datasets marks BRIGHT's excluded ids so: problems from the query's own source.
EXCLUDED = -100
# Files that exist only if the source has their content.
ANSWERS = "answers.parquet"
LISTS = "lists.parquet"


def join_contents(title: str, text: str) -> str:
    """Return the contents of a passage, which every stage indexes, encodes or shows: `title text`, or only the text."""
    return f"{title} {text}" if title else text


class Collection:
    """Read passages, queries and qrels of a dataset artifact, in the order of its source.

    Everything is read when it is needed, and no method holds more than one batch of the corpus' texts.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

    @cached_property
    def passages(self) -> int:
        """Return the number of passages."""
        return int(pq.read_metadata(self.artifact.path(CORPUS)).num_rows)

    def batches(
        self,
        rows: int = 16384,
        columns: Sequence[str] = ("doc_id", "title", "text"),
        span: range | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the corpus, or its rows `span`, as record batches of at most `rows` passages, in row order.

        Reading begins with the row group of the first row.
        """
        span = range(self.passages) if span is None else span
        with open_parquet(self.artifact.path(CORPUS)) as file:
            sizes = [
                file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)
            ]
            bounds = list(accumulate(sizes, initial=0))
            groups = []
            for group, (start, stop) in enumerate(pairwise(bounds)):
                if start < span.stop and stop > span.start:
                    groups.append(group)

            row = bounds[groups[0]] if groups else 0  # of the batch's first passage
            for batch in file.iter_batches(
                batch_size=rows, row_groups=groups, columns=list(columns)
            ):
                first = max(span.start - row, 0)
                stop = min(span.stop - row, batch.num_rows)
                if first < stop:
                    yield batch.slice(first, stop - first)
                row += batch.num_rows

    def doc_ids(self) -> pa.ChunkedArray:
        """Return ids of all passages in row order: about 16 bytes a passage in Arrow."""
        return pq.read_table(self.artifact.path(CORPUS), columns=["doc_id"])["doc_id"]

    def queries(self, split: str) -> dict[str, str]:
        """Return query id → text of a split, in file order; a `UserError` if the split has none."""
        return dict(iterate_rows(self._split(QUERIES, split, ["query_id", "text"])))

    def query_texts(self) -> dict[str, str]:
        """Return query id → text of all splits."""
        return dict(
            iterate_rows(pq.read_table(self.artifact.path(QUERIES), columns=["query_id", "text"]))
        )

    def qrels(self, split: str) -> dict[str, dict[str, int]]:
        """Return query id → document id → relevance of a split, in file order; a `UserError` if the split has none."""
        judged: dict[str, dict[str, int]] = {}
        for query, doc, relevance in iterate_rows(
            self._split(QRELS, split, ["query_id", "doc_id", "relevance"])
        ):
            judged.setdefault(query, {})[doc] = relevance
        return judged

    def excluded(self, split: str) -> dict[str, dict[str, int]]:
        """Return the part of `qrels` that is graded `EXCLUDED`; empty if the split has no such grade, or no qrels."""
        of_split = [("split", "==", split), ("relevance", "==", EXCLUDED)]
        table = pq.read_table(
            self.artifact.path(QRELS), columns=["query_id", "doc_id"], filters=of_split
        )
        judged: dict[str, dict[str, int]] = {}
        for query, doc in iterate_rows(table):
            judged.setdefault(query, {})[doc] = EXCLUDED
        return judged

    def answers(self, split: str) -> dict[str, list[str]]:
        """Return query id → answers of a split's questions, in file order; a `UserError` if none of them has any."""
        if ANSWERS not in self.artifact.manifest.files:
            raise UserError(
                f"{self.artifact.folder}: has no answers; only a dataset with answers can be matched"
            )
        of_split = self.known_answers(split)
        if not of_split:
            raise UserError(f"{self.artifact.path(ANSWERS)}: no query of split {split} has answers")
        return of_split

    def known_answers(self, split: str) -> dict[str, list[str]]:
        """Return query id → answers of a split's questions that have some, in file order; there may be none."""
        if ANSWERS not in self.artifact.manifest.files:
            return {}
        answers = dict(iterate_rows(pq.read_table(self.artifact.path(ANSWERS))))
        return {query: answers[query] for query in self.queries(split) if query in answers}

    def lists(self) -> Iterator[tuple[str, list[tuple[str, int, float | None]]]]:
        """Yield (query id, its (document id, label, score)) of the source's own training lists, in its order."""
        if LISTS not in self.artifact.manifest.files:
            raise UserError(
                f"{self.artifact.folder}: has no training lists of its own; name a run instead"
            )
        for query, group in groupby(stream_rows(self.artifact.path(LISTS)), key=itemgetter(0)):
            yield query, [(doc, label, score) for _, doc, label, score in group]

    def texts(self, doc_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return document id → (title, text) of a few passages, by one streaming pass; unknown ids are absent."""
        ids = pa.array(sorted(set(doc_ids)), pa.string())
        texts: dict[str, tuple[str, str]] = {}
        for batch in self.batches():
            hits = batch.filter(pc.is_in(batch["doc_id"], value_set=ids))
            docs, titles, bodies = (column.to_pylist() for column in hits.columns)
            for doc, title, text in zip(docs, titles, bodies, strict=True):
                texts[doc] = title, text
            if len(texts) == len(ids):
                break
        return texts

    def _split(self, name: str, split: str, columns: list[str]) -> pa.Table:
        path = self.artifact.path(name)
        table = pq.read_table(path, columns=columns, filters=[("split", "==", split)])
        if table.num_rows == 0:
            splits = pq.read_table(path, columns=["split"])["split"]
            have = ", ".join(sorted(splits.unique().to_pylist()))
            raise UserError(f"{path}: holds no split {split}; it holds {have or 'none'}")
        return table
