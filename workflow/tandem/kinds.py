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
        shards: whether jobs may share its work though no model computes it.
        lazy: roles of the inputs whose files the stage itself checks against their manifests, as far as it reads them.
    """

    version: int
    entry: str
    modules: tuple[str, ...]
    gpu: tuple[str, ...] = ()
    ranks: bool = False
    shards: bool = False
    lazy: tuple[str, ...] = ()

    def computes(self, roles: Iterable[str]) -> bool:
        """Whether a stage with inputs of these roles wants a GPU."""
        return any(role.split(".")[0] in self.gpu for role in roles)


_DATA = ("data/collection.py", "data/rows.py", "data/runs.py")
_VECTORS = ("search/blocks.py", "search/quantised.py")
_EXACT = ("search/exact.py", "search/stretches.py", "search/flat.py", "search/streamed.py", "search/fed.py")
_WINDOWS = ("search/aggregation.py", "search/windows.py", "data/windowing.py")
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
    "bm25s": Kind(1, "lexical.terms:run", ("lexical", "data/collection.py", "data/segment.py", "models/ragged.py")),
    "bm25": Kind(1, "lexical.search:run", ("lexical", *_DATA)),
    "tune_bm25": Kind(1, "lexical.tuning:run", ("lexical", "scoring/measures.py", "scoring/stage.py", *_DATA)),
    "candidates": Kind(1, "candidates.stage:run", ("candidates", *_SCORES, *_DATA), gpu=("judge",)),
    "teacher": Kind(
        1, "candidates.teacher:run", ("candidates/teacher.py", "training/lists.py", *_SCORES, *_DATA), gpu=("judge",)
    ),
    "model": Kind(1, "training.stage:run", ("training", "models", *_DATA), gpu=_STARTS, ranks=True),
    "checkpoint": Kind(1, "training.stage:run", ("training", "models", *_DATA), gpu=_STARTS, ranks=True),
    "embeddings": Kind(
        1,
        "search.encode:run",
        ("search/encode.py", "search/encoder.py", "search/partners.py", "models", *_VECTORS),
        gpu=("model",),
    ),
    "retrieve": Kind(
        1,
        "search.retrieve:run",
        ("search/retrieve.py", "search/partials.py", "data/order.py", *_EXACT, *_VECTORS, *_DATA),
        gpu=("passages",),
        lazy=("dataset", "passages"),
    ),
    "index": Kind(1, "search.indexes.stage:run", ("search/indexes", *_VECTORS), shards=True, lazy=("passages",)),
    "ann": Kind(
        1,
        "search.ann:run",
        ("search/ann.py", "search/indexes", "data/order.py", *_EXACT, *_VECTORS, *_DATA),
        lazy=("dataset",),
    ),
    "tradeoffs": Kind(
        1,
        "search.tradeoffs:run",
        ("search/tradeoffs.py", "search/ann.py", "search/indexes", "data/order.py", *_EXACT, *_VECTORS),
        lazy=("dataset",),
    ),
    "rerank": Kind(1, "search.rerank:run", ("search/rerank.py", *_SCORES, *_DATA), gpu=("model", "judge")),
    "rerank_windows": Kind(
        1,
        "search.rerank_windows:run",
        ("search/rerank_windows.py", "search/rerank.py", *_WINDOWS, *_SCORES, *_DATA),
        gpu=("judge",),
    ),
    "aggregate": Kind(1, "search.aggregate:run", ("search/aggregate.py", *_WINDOWS, *_DATA)),
    "fuse": Kind(1, "fusion.stage:run", ("fusion", *_DATA)),
    "tune_fusion": Kind(1, "fusion.tuning:run", ("fusion", "scoring", *_DATA)),
    "score": Kind(1, "scoring.stage:run", ("scoring", *_DATA)),
    "average_rank": Kind(
        1, "scoring.average_rank:run", ("scoring", "search/exact.py", "data/order.py", *_VECTORS, *_DATA)
    ),
    "given": Kind(1, "data.given:run", ("data/given.py", *_DATA)),
    "imported": Kind(1, "data.imported:run", ("data/imported.py", "data/triples.py", "data/reading.py", *_DATA)),
    "match": Kind(1, "scoring.answers.stage:run", ("scoring/answers", *_DATA)),
    "noise": Kind(1, "audits.noise.stage:run", ("audits/noise", *_DATA)),
    "similar_queries": Kind(
        1, "audits.similar.stage:run", ("audits/similar", *_VECTORS, *_SCORES, *_DATA), gpu=("judge",)
    ),
    "false_negatives": Kind(
        1, "audits.false_negatives.stage:run", ("audits/false_negatives", *_SCORES, *_DATA), gpu=("judge",)
    ),
    "relabel": Kind(1, "audits.false_negatives.relabel:run", ("audits/false_negatives", *_DATA)),
    "errors": Kind(1, "analysis.errors:run", ("analysis", "audits/similar/words.py", "scoring/relevance.py", *_DATA)),
    "dynamics": Kind(
        1,
        "analysis.dynamics:run",
        ("analysis", "search/encoder.py", "training/lists.py", *_SCORES, *_DATA),
        gpu=("point", *_STARTS),
    ),
    "hardness": Kind(1, "analysis.hardness:run", ("analysis", *_SCORES, *_DATA), gpu=("judge",)),
}


def is_stage(command: str) -> bool:
    """Whether a command makes an artifact or a shard of one; the others look at what there is."""
    return command in KINDS or command == "index-train" or command.endswith("-shard")
