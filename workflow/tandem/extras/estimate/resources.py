"""What estimates are made from: a machine's rates, the volume of text, and the work that a kind's cost function counts.

A cost function takes a stage and its `Setting` and returns its `Work`; `@cost("<kind>")` registers it. Tandem's
kinds without one take a moment.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, inf
from pathlib import Path
from typing import Any, Self

from tandem.config.datasets import UNSPACED, Dataset
from tandem.config.merging import read_yaml
from tandem.config.settings import ExecutionSettings
from tandem.data.splits import LEARNED
from tandem.errors import UserError, nearest
from tandem.extras.estimate.measurement import measure_once
from tandem.plan.graph import Stage
from tandem.plan.sizes import EncoderShape
from tandem.registry import Registry
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.store.artifact import MANIFEST

MIB = 1 << 20
PROCESS = 600 * MIB  # an interpreter with torch; 140 without, which no one has to plan for
WORK = ("encode", "rerank", "dual", "cross", "joint")
STARTS = ("data", "lexical", "search", "models")  # environments of stages
RATES = (
    *("passages", "tokens", "encoded", "indexed", "bm25", "hits", "lines", "listed", "run", "files"),
    *("flat_search", "compared", "faiss", "faiss_alone", "hops", "rescored"),
)
OPERATIONS = ("flat_search", "faiss", "faiss_alone")  # rates in millions of millions
# Mean tokens of a (passage, query) without an entry's own: web passages of 56 words at 1.3 WordPiece tokens a word;
# in Chinese one token a character, and DuReader-retrieval's mean of 272 characters (Qiu et al. 2022, §2.2).
TYPICAL = {"zh": (272.0, 9.3)}
OTHERWISE = (73.0, 8.5)
TOKENS_PER_WORD = 1.3
DUAL_SPECIAL, PAIR_SPECIAL = 2, 3  # tokens
LINE, TEXT = 5, 55  # bytes of a run's line, and of the same line in run.trec


@dataclass(frozen=True)
class Hardware:
    """One entry of config/hardware/.

    `rates` are of work without a model, per second:

    - passages read and written; tokens made, and tokens on their way through an encoder, beside its matrix products;
    - passages indexed; queries of BM25 on a corpus of a million passages, and their hits;
    - lines of runs that are fused or scored; queries that training lists are drawn for (`listed`);
    - bytes of a run written (`run`), and of any file, with its checksum when it is written and when it is first read;
    - operations of exact search, scores that it compares with the best so far, operations of FAISS by all and by one of
      the processor's threads, steps from node to neighbour in a graph (`hops`), and files in which a single
      query's proposals are `rescored`.
    """

    name: str
    peak: float  # TFLOP/s of large matrix products in the precision that training uses
    mfu: dict[str, float]  # kind of work → share of the peak that its model operations reach
    rates: dict[str, float]
    start: dict[str, float]  # environment → seconds until a job begins to compute, and that it ends in
    activation_bytes: int  # that a training stores of each number it needs for the backward pass
    held: int  # bytes that a training's allocator holds beside what is in use
    origin: dict[str, str]  # where the figures are from, and which of them were not measured
    layers: float | None = None  # TFLOP/s that `measure_once` found on that machine; None of those it cannot measure

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read an entry; a `UserError` where there is none of this name, or a figure is missing or not above 0."""
        path = folder / f"{name}.yaml"
        if not path.is_file():
            known = [entry.stem for entry in folder.glob("*.yaml")]
            raise UserError(f"execution.hardware: {name} is unknown{nearest(name, known)}")
        entry = read_yaml(path)
        single = ["peak_tflops", "activation_bytes", "held_mib"]
        if isinstance(entry, dict) and "layers_tflops" in entry:
            single.append("layers_tflops")
        for section, keys in (("", single), ("mfu", WORK), ("rates", RATES), ("start_seconds", STARTS)):
            figures = entry.get(section) if section and isinstance(entry, dict) else entry
            for key in keys:
                where = f"{path}: {section}{section and '.'}{key}"
                if not isinstance(figures, dict) or key not in figures:
                    raise UserError(f"{where} is missing")
                figure = figures[key]
                if not isinstance(figure, int | float) or not (0 < figure < inf or (key, figure) == ("held_mib", 0)):
                    raise UserError(f"{where} is {figure!r}; allowed: a number above 0")
        rates = {key: rate * (1e12 if key in OPERATIONS else 1) for key, rate in entry["rates"].items()}
        return cls(
            name=name,
            peak=float(entry["peak_tflops"]),
            mfu=entry["mfu"],
            rates=rates,
            start=entry["start_seconds"],
            activation_bytes=int(entry["activation_bytes"]),
            held=int(entry["held_mib"]) << 20,
            origin=entry.get("origin") or {},
            layers=entry.get("layers_tflops"),
        )

    @classmethod
    def load_scaled(cls, folder: Path, name: str) -> Self:
        """Read an entry, and scale its models' speed to this machine's where the entry says what was measured there."""
        hardware = cls.load(folder, name)
        if hardware.layers is None:
            return hardware
        speed = measure_once()
        if speed is None:
            note = "not measured here, as other programs compute or torch is missing: these are that machine's figures"
            return replace(hardware, origin={**hardware.origin, "this machine": note})
        factor = speed.tflops / hardware.layers
        note = f"{speed.processor}: computes layers {factor:.2f} times as fast, in {speed.precision}"
        return replace(hardware, peak=hardware.peak * factor, origin={**hardware.origin, "this machine": note})

    def seconds(self, kind: str, operations: float) -> float:
        """How long so many model operations of a kind of work take on one device."""
        return operations / (self.peak * 1e12 * self.mfu[kind])


@dataclass(frozen=True)
class Volumes:
    """A dataset's size: its passages, and its queries by split."""

    passages: int
    queries: dict[str, int]
    lengths: dict[str, float]  # mean tokens of an uncut `passage` and `query`, without special tokens
    counted: bool = False  # else these are the catalogue's numbers and typical lengths
    positives: dict[str, int] = field(default_factory=dict)  # relevant passages of all queries, by split where known

    def tokens(self, side: str, limit: int) -> float:
        """Mean tokens of a text cut at `limit`, for lengths of half the mean and an exponential rest.

        E[min(X, limit)] for X = m/2 + Exp(m/2).
        """
        half = self.lengths[side] / 2
        return float(limit) if limit <= half else half + half * (1 - exp(-(limit - half) / half))


@cache
def finished(folder: str) -> Json | None:
    """The manifest of an artifact, None where it is not finished."""
    path = Path(folder) / MANIFEST
    manifest: Json | None = json.loads(path.read_text()) if path.is_file() else None
    return manifest


def volumes(stage: Stage, entry: Dataset | None) -> Volumes | None:
    """The size of a dataset stage's collection: its artifact's statistics, else its catalogue entry's; None without."""
    language = entry.language if entry else ""
    typical = TYPICAL.get(language, OTHERWISE)
    if finished(stage.folder) and (path := Path(stage.folder) / "statistics.json").is_file():
        statistics = json.loads(path.read_text())
        queries = {name: split["queries"] for name, split in statistics["splits"].items()}
        sides = {"passage": statistics["passages"], "query": next(iter(statistics["splits"].values()), {})}
        lengths = {side: tokens_of(counted, typical[i], language) for i, (side, counted) in enumerate(sides.items())}
        positives = {name: split["qrels"] for name, split in statistics["splits"].items() if split["qrels"]}
        return Volumes(statistics["passages"]["count"], queries, lengths, counted=True, positives=positives)
    counts = (entry.counts if entry else None) or {}
    if entry is None or "passages" not in counts:
        return None
    queries = {name: n for name, n in counts.items() if name != "passages" and not name.endswith("_qrels")}
    for source, target in (("test", "train"), ("train", "dev")):
        key = f"{target}_from_{source}"
        if (share := stage.values.get(key)) and source in queries and target not in queries:
            moved = min(round(share * queries[source]), stage.values.get(f"{key}_most") or queries[source])
            queries |= {source: queries[source] - moved, target: moved}
    most = {name: getattr(entry, f"{name}_queries", None) for name in queries}
    queries = {name: min(n, most[name] or n) for name, n in queries.items()}
    lengths = {"passage": typical[0], "query": typical[1]} | (entry.tokens or {})
    judged = [name for name in queries if f"{name}_qrels" in counts]
    positives = {name: round(counts[f"{name}_qrels"] * queries[name] / counts[name]) for name in judged}
    return Volumes(counts["passages"], queries, lengths, positives=positives)


def tokens_of(counted: Mapping[str, Any], typical: float, language: str, statistic: str = "mean") -> float:
    """Mean tokens (or `p90`, …) from counted words, or from characters where white space separates no words.

    Without a language that is written so, very long words tell.
    """
    words, characters = ((counted.get(unit) or {}).get(statistic, 0) for unit in ("words", "characters"))
    if not words:
        return typical
    return float(characters) if language in UNSPACED or characters > 12 * words else words * TOKENS_PER_WORD


def params_of(stage: Stage) -> Any:
    """A stage's parameters as its kind's model; as they are where a plugin's kind has none."""
    model = KINDS[stage.kind].params
    return stage.params_as(model) if model else stage.params


@dataclass(frozen=True)
class Work:
    """A stage's work."""

    kind: str | None = None  # what its model operations are, one of `WORK`; None without a model
    operations: float = 0.0  # floating-point operations of models
    rows: tuple[tuple[str, float], ...] = ()  # a rate's name, and what passes at it without a model; shards share it
    alone: tuple[tuple[str, float], ...] = ()  # the same by one job, before the shards begin or when they have ended
    memory: float = PROCESS  # bytes at the peak
    disk: float = 0.0  # bytes of the artifact, without those of a run
    run: float = 0.0  # bytes of the run that is written
    steps: int | None = None  # of an optimizer


@dataclass(frozen=True)
class Setting:
    """What the work of a stage depends on beside its parameters; see also `Hardware`."""

    sizes: Callable[[Stage], Volumes]  # of a dataset stage's collection
    shape: Callable[[Stage], EncoderShape]  # of the encoder that a stage's models descend from
    execution: ExecutionSettings
    activation_bytes: int = 2
    held: int = 0

    def size(self, stage: Stage) -> Volumes:
        """The size of the collection that a stage is made from, or makes."""
        return self.sizes(stage.upstream.get("dataset", stage))

    def passages(self, stage: Stage) -> int:
        """How many passages that collection has."""
        return self.size(stage).passages

    def queries(self, stage: Stage, split: str = "") -> int:
        """How many queries of a split, the stage's own by default, there are in that collection."""
        return self.size(stage).queries.get(split or params_of(stage).split, 0)

    def positives(self, stage: Stage, split: str) -> int:
        """How many relevant passages they have together; one each where that is not known."""
        return self.size(stage).positives.get(split, self.queries(stage, split))

    def run(self, stage: Stage, depth: int = 0, split: str = "") -> float:
        """Bytes of a run, as deep as the stage's parameters say: its columns, and its text where it is evaluated."""
        split = split or params_of(stage).split
        line = LINE if split in LEARNED else LINE + TEXT
        return self.queries(stage, split) * (depth or params_of(stage).depth) * line

    def dimension(self, embeddings: Stage) -> int:
        """How many numbers a vector of an `embeddings` stage has, or a row of a `token_vectors` stage."""
        model = params_of(embeddings.upstream["model"])
        dim: int = getattr(model.representation, "dim", None) or model.dim or 0
        numbers: int = model.representation.id_numbers
        return numbers + (dim or self.shape(embeddings.upstream["tokens"]).hidden)

    def lengths(self, tokens: Stage) -> tuple[float, float]:
        """Mean tokens of a (query, passage) under a `tokens` stage, without special tokens: counted if it is made."""
        size, params = self.size(tokens), params_of(tokens)
        manifest = finished(tokens.folder)
        passage = size.tokens("passage", params.passage_length)
        if manifest and (facts := manifest["facts"]).get("passages"):
            passage = facts["passage_tokens"] / facts["passages"]
        return size.tokens("query", params.query_length), passage

    def pair_length(self, tokens: Stage) -> float:
        """Mean tokens of a pair under a `tokens` stage, special ones included."""
        return min(sum(self.lengths(tokens)) + PAIR_SPECIAL, params_of(tokens).pair_length or float("inf"))


CostFunction = Callable[[Stage, Setting], Work]
cost: Registry[CostFunction] = Registry("cost function", "cost", "extras.estimate", decides=False)  # by kind
