"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import faiss
import numpy as np

from tandem.artifact import Artifact, open_artifact
from tandem.data.order import Order
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, Best, pair_scores
from tandem.retrieval.faiss_search import BlockSearch
from tandem.retrieval.indexes import search
from tandem.retrieval.indexes.threads import alone
from tandem.stages.retrieval import AnnParams

KEPT = 2 << 30  # bytes of blocks that stay ready
PER_VALUE = 4  # bytes of a value of a block that is ready


class Searcher(Protocol):
    """What finds the best passages of queries: `Exact`, or `search.Searcher`."""

    def best(self, queries: Array, depth: int) -> Best:
        """The best passages of queries, shape (queries, dim)."""


class Vectors:
    """Embeddings of passages, by part.

    Args:
        parts: key → a part's stage parameters and the folders it reads.
        workers: threads of FAISS.
    """

    def __init__(self, parts: dict[str, Any], workers: int) -> None:
        faiss.omp_set_num_threads(workers)
        self._open, room = ExitStack(), KEPT // len(parts)
        self.parts: dict[str, tuple[Searcher, Embeddings, Order]] = {}
        for key, told in parts.items():
            inputs = {role: open_artifact(Path(folder), verify=False) for role, folder in told["in"].items()}
            passages = Embeddings(inputs["passages"], "passages")
            order = Order(inputs["dataset"])
            if "index" in inputs:
                searcher: Searcher = self._indexed(inputs["index"], passages, order.ranks, told["params"], workers)
            else:
                searcher = Exact(passages, order.ranks, room)
            self.parts[key] = searcher, passages, order

    def _indexed(
        self, index: Artifact, passages: Embeddings, ranks: Array, params: dict[str, Any], workers: int
    ) -> search.Searcher:
        """The searcher of the stage `ann`."""
        opened = search.Index(index, self._open.enter_context(alone(workers)))
        how = AnnParams.model_validate({key: params[key] for key in AnnParams.model_fields if key in params})
        opened.tune(how.nprobe, how.ef_search)
        return search.Searcher(opened, passages, ranks, how.rescore, how.rescore_factor)

    def answer(self, asked: dict[str, Any]) -> Any:
        """With `rows`: their scores for the query's `vector`; with `depth`: (ids, scores) of the best passages."""
        searcher, passages, order = self.parts[asked["part"]]
        vector = np.array(asked["vector"], np.float16)[None]
        if "rows" in asked:
            taken = np.concatenate([passages.take(row, row + 1) for row in asked["rows"]])
            return pair_scores(np.repeat(vector, len(taken), axis=0), taken, passages.temperature).tolist()
        ranks, scores = searcher.best(vector, min(asked["depth"], passages.rows)).ranked(0)
        return order.ids(ranks), scores.tolist()


class Exact:
    """The search of the stage `retrieve`.

    Blocks are searched one after the other, so a query takes time in proportion to the corpus. Of blocks that fit the
    searcher is kept; others are mapped from disk and made ready again for each query.

    Args:
        passages: the vectors.
        ranks: alphabetical rank of each row's id.
        room: bytes of blocks that may stay ready.
    """

    def __init__(self, passages: Embeddings, ranks: Array, room: int) -> None:
        self.passages, self.ranks = passages, ranks
        kept = room // (PER_VALUE * passages.dimension * passages.size)
        self.ready = [self._block(number) for number in range(min(kept, len(passages)))]

    def _block(self, number: int) -> BlockSearch:
        """A block's searcher."""
        first, vectors = number * self.passages.size, self.passages.block(number)
        return BlockSearch(vectors, self.ranks[first : first + len(vectors)], self.passages.temperature)

    def best(self, queries: Array, depth: int) -> Best:
        """The best passages of queries (fp16), ties by document id."""
        best, at = Best(len(queries), depth), slice(0, len(queries))
        for number in range(len(self.passages)):
            block = self.ready[number] if number < len(self.ready) else self._block(number)
            best.add(at, block.candidates(queries, depth, best.floors(at)))
        return best
