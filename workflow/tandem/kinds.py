"""The kinds of stages: their version, what runs them, and the modules that decide their result.

Raise a kind's version when the meaning of its result changes: its artifacts and everything after them get new
names. Nothing else about the code is part of a name.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of stage.

    Attributes:
        version: part of the digest of every stage of this kind.
        entry: `module:function` that runs it, below the package `tandem`; the function takes a `Job`.
        modules: files and folders below the package whose sources are hashed into the manifest.
        gpu: roles of the inputs that it computes with on a GPU, without the number of one of several.
        ranks: whether several processes, one per device, may do its work.
    """

    version: int
    entry: str
    modules: tuple[str, ...]
    gpu: tuple[str, ...] = ()
    ranks: bool = False

    def computes(self, roles: Iterable[str]) -> bool:
        """Whether a stage with inputs of these roles wants a GPU."""
        return any(role.split(".")[0] in self.gpu for role in roles)


_DATA = ("data/collection.py", "data/rows.py", "data/runs.py")
_STARTS = ("start", "retriever", "reranker")
_SCORES = ("search/pairs.py", "search/store.py", "search/partners.py", "models")

KINDS: dict[str, Kind] = {
    "dataset": Kind(1, "data.stage:run", ("data",)),
    "encoder": Kind(1, "models.encoder:run", ("models/encoder.py", "models/hub.py")),
    "vocabulary": Kind(1, "models.vocabulary:run", ("models/vocabulary.py", "data/collection.py")),
    "pretrain": Kind(1, "training.pretrain:run", ("training", "models"), gpu=_STARTS, ranks=True),
    "tokens": Kind(
        1, "models.tokens:run", ("models/tokens.py", "models/ragged.py", "models/template.py", "data/collection.py")
    ),
    "lucene": Kind(1, "lexical.index:run", ("lexical", "data/collection.py")),
    "bm25": Kind(1, "lexical.search:run", ("lexical", *_DATA)),
    "candidates": Kind(1, "candidates.stage:run", ("candidates", *_SCORES, *_DATA), gpu=("judge",)),
    "teacher": Kind(
        1, "candidates.teacher:run", ("candidates/teacher.py", "training/lists.py", *_SCORES, *_DATA), gpu=("judge",)
    ),
    "model": Kind(1, "training.stage:run", ("training", "models", *_DATA), gpu=_STARTS, ranks=True),
    "checkpoint": Kind(1, "training.stage:run", ("training", "models", *_DATA), gpu=_STARTS, ranks=True),
    "embeddings": Kind(
        1, "search.encode:run", ("search/encode.py", "search/blocks.py", "search/partners.py", "models"), gpu=("model",)
    ),
    "retrieve": Kind(1, "search.retrieve:run", ("search/retrieve.py", "search/exact.py", "search/blocks.py", *_DATA)),
    "rerank": Kind(1, "search.rerank:run", ("search/rerank.py", *_SCORES, *_DATA), gpu=("model",)),
    "score": Kind(1, "scoring.stage:run", ("scoring", *_DATA)),
    "average_rank": Kind(1, "scoring.average_rank:run", ("scoring", "search/exact.py", "search/blocks.py", *_DATA)),
    "given": Kind(1, "data.given:run", ("data/given.py", *_DATA)),
    "imported": Kind(1, "data.imported:run", ("data/imported.py", "data/triples.py", "data/reading.py", *_DATA)),
    "match": Kind(1, "scoring.answers.stage:run", ("scoring/answers", *_DATA)),
    "noise": Kind(1, "audits.noise.stage:run", ("audits/noise", *_DATA)),
    "similar_queries": Kind(
        1, "audits.similar.stage:run", ("audits/similar", "search/blocks.py", *_SCORES, *_DATA), gpu=("judge",)
    ),
    "false_negatives": Kind(
        1, "audits.false_negatives.stage:run", ("audits/false_negatives", *_SCORES, *_DATA), gpu=("judge",)
    ),
    "relabel": Kind(1, "audits.false_negatives.relabel:run", ("audits/false_negatives", *_DATA)),
}
