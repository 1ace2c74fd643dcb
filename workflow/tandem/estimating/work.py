"""What a stage has to do: operations of its models, rows that pass, memory and disk."""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

from tandem.estimating.shape import Shape
from tandem.estimating.volumes import Volumes, finished
from tandem.plan.graph import Stage

MIB = 1 << 20
PROCESS = 600 * MIB  # an interpreter with torch; 140 without, which no one has to plan for
LINE = 60  # bytes of a run's line
Rows = tuple[tuple[str, float], ...]  # rate's name → how many rows pass at that rate
TRAINED = 16  # bytes a weight in training: itself, its gradient, two moments, float32 each


@dataclass(frozen=True)
class Work:
    """A stage's work.

    Attributes:
        kind: what its model operations are (`encode`, `rerank`, `dual`, `cross`, `joint`); None without a model.
        operations: floating-point operations of models.
        rows: what passes without a model; shards share it.
        alone: the same before they begin, by one job.
        memory: bytes at the peak.
        disk: bytes of the artifact.
    """

    kind: str | None = None
    operations: float = 0.0
    rows: Rows = ()
    alone: Rows = ()
    memory: float = PROCESS
    disk: float = 0.0


@dataclass(frozen=True)
class Setting:
    """What the work of a stage depends on beside its parameters.

    Attributes:
        sizes: of a dataset stage's collection.
        shape: of the encoder that a stage's models descend from.
        execution: the configuration's `execution`.
        activation_bytes: see `Hardware`.
        held: likewise.
    """

    sizes: Callable[[Stage], Volumes]
    shape: Callable[[Stage], Shape]
    execution: dict[str, Any]
    activation_bytes: int = 2
    held: int = 0

    def lengths(self, tokens: Stage) -> tuple[float, float]:
        """Mean tokens of a (query, passage) under a `tokens` stage, without special tokens: counted if it is made."""
        size, params = self.sizes(tokens.upstream["dataset"]), tokens.values
        made = finished(tokens.folder)
        passage = size.tokens("passage", params["passage_length"])
        if made and made.get("passages"):
            passage = made["passage_tokens"] / made["passages"]
        return size.tokens("query", params["query_length"]), passage


def dataset(stage: Stage, about: Setting) -> Work:
    """Reading, checking and writing; 60 bytes a passage are kept (see benchmarks/results/dataset_stage.md)."""
    size = about.sizes(stage)
    text = size.passages * size.lengths["passage"] * 5
    return Work(rows=(("passages", size.passages),), memory=150 * MIB + 60 * size.passages, disk=0.6 * text)


def tokens(stage: Stage, about: Setting) -> Work:
    """Tokenising the corpus and all queries; two bytes a token."""
    size, (query, passage) = about.sizes(stage.upstream["dataset"]), about.lengths(stage)
    total = size.passages * passage + sum(size.queries.values()) * query
    return Work(rows=(("tokens", total),), memory=400 * MIB, disk=2 * total + 8 * size.passages)


def lucene(stage: Stage, about: Setting) -> Work:
    """Indexing."""
    size = about.sizes(stage.upstream["dataset"])
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=size.passages * size.lengths["passage"] * 2)


def bm25(stage: Stage, about: Setting) -> Work:
    """Searching: a query's time grows with the corpus; the rate is that of a million passages."""
    size = about.sizes(stage.upstream["dataset"])
    asked = size.queries.get(stage.values["split"], 0)
    searched = asked * max(size.passages / 1e6, 0.02)
    return Work(rows=(("bm25", searched),), memory=1024 * MIB, disk=asked * stage.values["depth"] * LINE)


def bm25s(stage: Stage, about: Setting) -> Work:
    """Numbering the terms of all passages; four bytes a term on disk, the vocabulary in memory."""
    size = about.sizes(stage.upstream["dataset"])
    disk = size.passages * (4 * size.lengths["passage"] + 8)
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=disk)


def tune_bm25(stage: Stage, about: Setting) -> Work:
    """Searching a split once for every k1 and b."""
    size, told = about.sizes(stage.upstream["dataset"]), stage.values
    asked = min(size.queries.get(told["split"], 0), told["queries"] or float("inf"))
    searched = len(told["k1"]) * len(told["b"]) * asked * max(size.passages / 1e6, 0.02)
    return Work(rows=(("bm25", searched),), memory=1024 * MIB)


def pairs_read(about: Setting, tokens: Stage, pairs: float, models: int, disk: float) -> Work:
    """Cross-encoders' scores of pairs, which are kept; `disk` is what the stage itself writes."""
    shape, (query, passage) = about.shape(tokens), about.lengths(tokens)
    operations = models * shape.forward(pairs, query + passage + 3)
    return Work("rerank", operations, memory=PROCESS + 8 * shape.parameters, disk=disk + 12 * pairs)


def candidates(stage: Stage, about: Setting) -> Work:
    """Drawing lists; with a judge every passage of the window is scored."""
    size, params = about.sizes(stage.upstream["dataset"]), stage.values
    queries = min(size.queries.get(params["split"], 0), params.get("queries") or 1 << 62)
    depth, judges = params["depth"], [role for role in stage.upstream if role.startswith("judge.")]
    if judges:
        read = stage.upstream["judge_tokens.0"]
        return pairs_read(about, read, queries * (depth + 1), len(judges), disk=queries * depth * 20)
    return Work(rows=(("lines", queries * depth),), memory=PROCESS, disk=queries * depth * 20)


def teacher(stage: Stage, about: Setting) -> Work:
    """A teacher's scores of all listed pairs."""
    size, drawn = about.sizes(stage.upstream["dataset"]), stage.upstream["candidates"].values
    pairs = min(size.queries.get("train", 0), drawn.get("queries") or 1 << 62) * drawn["depth"]
    judges = [role for role in stage.upstream if role.startswith("judge.")]
    if not judges:
        return Work(rows=(("lines", pairs),), disk=4 * pairs)
    return pairs_read(about, stage.upstream["judge_tokens.0"], pairs, len(judges), disk=4 * pairs)


def embeddings(stage: Stage, about: Setting) -> Work:
    """Encoding passages or a split's queries into fp16 vectors, or int8 with a scale of four bytes each."""
    size, read = about.sizes(stage.upstream["dataset"]), stage.upstream["tokens"]
    shape, (query, passage) = about.shape(read), about.lengths(read)
    passages = stage.values["side"] == "passages"
    texts = size.passages if passages else size.queries.get(stage.values["split"], 0)
    operations = shape.forward(texts, (passage if passages else query) + 2)
    each = shape.hidden + 4 if stage.values.get("dtype") == "int8" else 2 * shape.hidden
    return Work("encode", operations, memory=PROCESS + 4 * shape.parameters, disk=texts * each)


def retrieve(stage: Stage, about: Setting) -> Work:
    """Exact inner-product search of every query against every passage."""
    size, made = about.sizes(stage.upstream["dataset"]), stage.upstream["passages"]
    asked = size.queries.get(stage.upstream["queries"].values["split"], 0)
    operations = 2.0 * asked * size.passages * about.shape(made.upstream["tokens"]).hidden
    return Work(rows=(("flat_search", operations),), disk=asked * stage.values["depth"] * LINE)


def split_of(run: Stage) -> str:
    """The split of a run; a re-ranked one is of that of what it re-ranks."""
    return str(run.values["split"]) if run.values.get("split") else split_of(run.upstream["run"])


def rerank(stage: Stage, about: Setting) -> Work:
    """Scoring the top of every query's list, by each cross-encoder of an ensemble."""
    size, params = about.sizes(stage.upstream["dataset"]), stage.values
    run = stage.upstream["run"].values
    asked = size.queries.get(split_of(stage), 0)
    judges = max(1, sum(role.startswith("judge.") for role in stage.upstream))
    read = stage.upstream.get("tokens") or stage.upstream["judge_tokens.0"]
    return pairs_read(about, read, asked * params["depth"], judges, disk=asked * run["depth"] * LINE)


def rerank_windows(stage: Stage, about: Setting) -> Work:
    """Scoring the windows of the documents at the top of every query's list."""
    documents, windows = (about.sizes(stage.upstream[role]) for role in ("dataset", "windows"))
    params, run = stage.values, stage.upstream["run"].values
    asked = documents.queries.get(params["split"], 0)
    each = 1.0 if params["method"] == "first" else windows.passages / documents.passages
    judges = sum(role.startswith("judge.") for role in stage.upstream)
    pairs = asked * params["depth"] * each
    return pairs_read(about, stage.upstream["judge_tokens.0"], pairs, judges, disk=asked * run["depth"] * LINE)


def aggregate(stage: Stage, about: Setting) -> Work:
    """Reading a run over windows and writing one over documents."""
    asked = about.sizes(stage.upstream["dataset"]).queries.get(stage.values["split"], 0)
    read = asked * stage.upstream["run"].values["depth"]
    return Work(rows=(("lines", read),), memory=150 * MIB, disk=asked * stage.values["depth"] * LINE)


def fuse(stage: Stage, about: Setting) -> Work:
    """Reading several runs and writing one."""
    size, params = about.sizes(stage.upstream["dataset"]), stage.values
    runs = sum(role.startswith("run.") for role in stage.upstream)
    lines = size.queries.get(params["split"], 0) * params["depth"] * runs
    return Work(rows=(("lines", lines),), memory=150 * MIB, disk=lines * LINE / runs)


def tune_fusion(stage: Stage, about: Setting) -> Work:
    """Reading the runs once, and fusing them by every setting."""
    told, runs = stage.values, sum(role.startswith("run.") for role in stage.upstream)
    asked = about.sizes(stage.upstream["dataset"]).queries.get(told["split"], 0)
    settings = len(told["k"]) if told["method"] == "rrf" else comb(round(1 / told["step"]) + runs - 1, runs - 1)
    lines = asked * told["depth"] * runs
    return Work(rows=(("lines", lines * (1 + settings)),), memory=150 * MIB + 8.0 * settings * asked)


def score(stage: Stage, about: Setting) -> Work:
    """Measuring a run."""
    if "run" not in stage.upstream:
        return Work(memory=140 * MIB)
    size, run = about.sizes(stage.upstream["dataset"]), stage.upstream["run"].values
    asked = size.queries.get(stage.values["split"], 0)
    return Work(rows=(("lines", asked * run.get("depth", 100)),), memory=150 * MIB, disk=asked * 100)


def average_rank(stage: Stage, about: Setting) -> Work:
    """Ranking the relevant passage of every query among all of a small collection."""
    size = about.sizes(stage.upstream["dataset"])
    hidden = about.shape(stage.upstream["passages"].upstream["tokens"]).hidden
    asked = size.queries.get(stage.values["split"], 0)
    return Work(rows=(("flat_search", 2.0 * asked * size.passages * hidden),))


def vocabulary(stage: Stage, about: Setting) -> Work:
    """Learning a tokenizer from the corpus, which reads it once, and drawing the first weights."""
    size = about.sizes(stage.upstream["dataset"])
    return Work(rows=(("tokens", size.passages * size.lengths["passage"]),), disk=4 * about.shape(stage).parameters)


def encoder(stage: Stage, about: Setting) -> Work:
    """Copying a starting encoder."""
    return Work(disk=4 * about.shape(stage).parameters, memory=270 * MIB)
