"""The basis of estimates: a machine's rates, the volume of text, and the work counted by a kind's cost function.

A cost function takes a stage and its `Setting` and returns its `Work`; `@cost("<kind>")` registers it. Tandem's own
kinds without a cost function take only a moment.
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
from tandem.store.artifact import MANIFEST, Manifest, open_artifact

MIB = 1 << 20
PROCESS_BYTES = 600 * MIB  # an interpreter with torch; the 140 MiB without torch are negligible
MODEL_WORK = ("encode", "rerank", "dual", "cross", "joint")
START_ENVIRONMENTS = ("data", "lexical", "search", "models")
RATES = (
    "passages",
    "tokens",
    "encoded",
    "indexed",
    "bm25",
    "hits",
    "lines",
    "listed",
    "updated",
    "run",
    "files",
    "flat_search",
    "compared",
    "faiss",
    "faiss_alone",
    "scanned",
    "hops",
)
_TERA_RATES = ("flat_search", "faiss", "faiss_alone")  # rates in millions of millions
# Mean tokens without an entry's own: web passages of 56 words at 1.3 WordPiece tokens per word;
# in Chinese one token per character, and DuReader-retrieval's mean of 272 characters (Qiu et al. 2022, §2.2).
_TYPICAL_LENGTHS = {"zh": {"passage": 272.0, "query": 9.3}}
TYPICAL_WEB_LENGTHS = {"passage": 73.0, "query": 8.5}
TOKENS_PER_WORD = 1.3
TOKENS_PER_SENTENCE = 25.0
DUAL_SPECIAL, PAIR_SPECIAL = 2, 3  # tokens
_BYTES_PER_LINE = 5  # of a run
_BYTES_PER_TREC_LINE = 55  # of the same line in run.trec


@dataclass(frozen=True)
class Hardware:
    """A machine, as an entry of config/hardware/ describes it.

    `rates` are those of work without a model, per second:

    - passages read and written; tokens made, and tokens that pass through an encoder, apart from its matrix products;
    - passages indexed; queries of BM25 on a corpus of a million passages, and their hits;
    - lines of runs that are fused or scored; queries that training lists are drawn for (`listed`);
    - numbers of a vocabulary's vectors that a training fills, adds or updates (`updated`);
    - bytes of a run written (`run`), and of any file, with its checksum when it is written and when it is first read;
    - operations of exact search; scores that it compares with the best so far; operations of FAISS by all and by one of
      the processor's threads; bytes of an index's vectors or codes that are read for one query after another
      (`scanned`); and steps from node to neighbour in a graph (`hops`).
    """

    name: str
    peak: float  # TFLOP/s of large matrix products in the precision that training uses
    mfu: dict[str, float]  # kind of work → share of the peak that its model operations reach
    width: int  # numbers per token in the layers that reach these shares
    rates: dict[str, float]
    # environment → seconds that a job takes to begin computing, and to end
    start: dict[str, float]
    activation_bytes: int  # stored by a training per number that the backward pass needs
    held: int  # bytes that a training's allocator holds in addition to memory in use
    origin: dict[str, str]  # sources of the figures, and which of them were not measured
    # TFLOP/s that `measure_once` measured on that machine; None for machines that it cannot measure
    layers: float | None = None
    # the same for a typical machine whose processor has no bf16
    layers_in_fp32: float | None = None

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read an entry; a `UserError` if none has this name, or a figure is missing or not above 0."""
        path = folder / f"{name}.yaml"
        if not path.is_file():
            known = [entry.stem for entry in folder.glob("*.yaml")]
            raise UserError(f"execution.hardware: {name} is unknown{nearest(name, known)}")
        entry = read_yaml(path)
        _check_figures(path, entry)
        rates = {
            key: rate * (1e12 if key in _TERA_RATES else 1) for key, rate in entry["rates"].items()
        }
        return cls(
            name=name,
            peak=float(entry["peak_tflops"]),
            mfu=entry["mfu"],
            width=int(entry["mfu_width"]),
            rates=rates,
            start=entry["start_seconds"],
            activation_bytes=int(entry["activation_bytes"]),
            held=int(entry["held_mib"]) << 20,
            origin=entry.get("origin") or {},
            layers=entry.get("layers_tflops"),
            layers_in_fp32=entry.get("layers_tflops_in_fp32"),
        )

    @classmethod
    def load_scaled(cls, folder: Path, name: str) -> Self:
        """Read an entry, and scale its models' speed to this machine's if the entry has the speed measured there."""
        hardware = cls.load(folder, name)
        if hardware.layers is None:
            return hardware
        speed = measure_once()
        if speed is None:
            note = "not measured here, as torch is missing: these are that machine's figures"
            return replace(hardware, origin={**hardware.origin, "this machine": note})
        tflops, why = speed.tflops, ""
        if not speed.alone:
            usual = hardware.layers_in_fp32 if speed.precision == "fp32" else None
            tflops = max(tflops, usual or hardware.layers)
            why = ", as is usual: other programs computed beside the measurement"
        factor = tflops / hardware.layers
        note = f"{speed.processor}: computes layers {factor:.2f} times as fast, in {speed.precision}{why}"
        return replace(
            hardware, peak=hardware.peak * factor, origin={**hardware.origin, "this machine": note}
        )

    def seconds(self, work: "Work") -> float:
        """Return how long the models of a stage's work take on one device.

        The time of matrix products grows with the square of a layer's width, that of everything else with the width. In
        narrow layers, the larger part of the time is therefore not spent on products. Wide layers are assumed to reach
        no more than the measured share.
        """
        if work.kind is None:
            return 0.0
        products = work.operations / (self.peak * 1e12)
        rest = products * (1 / self.mfu[work.kind] - 1)
        narrower = max(1.0, self.width / (work.width or self.width))
        return products + rest * narrower + work.updated / self.rates["updated"]


def _check_figures(path: Path, entry: Any) -> None:
    """Refuse an entry of config/hardware/ that lacks a figure, or has one that is not a number above 0."""
    entry = entry if isinstance(entry, dict) else {}
    single = ["peak_tflops", "mfu_width", "activation_bytes", "held_mib"]
    single += [key for key in ("layers_tflops", "layers_tflops_in_fp32") if key in entry]
    for key in single:
        _check_figure(f"{path}: ", entry, key)

    for section, keys in (
        ("mfu", MODEL_WORK),
        ("rates", RATES),
        ("start_seconds", START_ENVIRONMENTS),
    ):
        for key in keys:
            _check_figure(f"{path}: {section}.", entry.get(section), key)


def _check_figure(place: str, figures: Any, key: str) -> None:
    if not isinstance(figures, dict) or key not in figures:
        raise UserError(f"{place}{key} is missing")
    figure = figures[key]
    if key == "held_mib" and figure == 0:
        return
    if not isinstance(figure, int | float) or not 0 < figure < inf:
        raise UserError(f"{place}{key} is {figure!r}; allowed: a number above 0")


@dataclass(frozen=True)
class Volumes:
    """The size of a dataset: its passages, and its queries by split."""

    passages: int
    queries: dict[str, int]
    # mean tokens of an uncut `passage` and `query`, without special tokens
    lengths: dict[str, float]
    counted: bool = False  # else the numbers are the catalogue's and lengths are typical ones
    # relevant passages of all queries, by split where known
    positives: dict[str, int] = field(default_factory=dict)

    def tokens(self, side: str, limit: int) -> float:
        """Return the mean tokens of a text cut at `limit`, if a length is half the mean plus an exponential part.

        E[min(X, limit)] for X = m/2 + Exp(m/2).
        """
        half = self.lengths[side] / 2
        if limit <= half:
            return float(limit)
        return half + half * (1 - exp(-(limit - half) / half))


@cache
def read_finished(folder: str) -> Manifest | None:
    """Return the manifest of an artifact, None if it is not finished; a `UserError` if it is damaged."""
    if not (Path(folder) / MANIFEST).is_file():
        return None
    return open_artifact(Path(folder), verify=False).manifest


def measure_collection(stage: Stage, entry: Dataset | None) -> Volumes | None:
    """Return the size of a dataset stage's collection, None if it was never counted.

    It comes from the finished artifact's statistics, else from the catalogue's entry.
    """
    language = entry.language if entry else ""
    lengths = _TYPICAL_LENGTHS.get(language, TYPICAL_WEB_LENGTHS)
    path = Path(stage.folder) / "statistics.json"
    if read_finished(stage.folder) and path.is_file():
        return _measure_finished(json.loads(path.read_text()), lengths, language)
    if entry is None or "passages" not in (entry.counts or {}):
        return None
    return _measure_entry(stage, entry, lengths)


def _measure_finished(statistics: Json, typical: Mapping[str, float], language: str) -> Volumes:
    """Return the size of a finished dataset; all queries are assumed as long as those of its first split.

    Its judgements may include irrelevant passages: positives are therefore their mean times a split's queries.
    """
    passages, splits = statistics["passages"], statistics["splits"]
    judged = {name: split for name, split in splits.items() if split["qrels"]}
    queries: Json = next(iter(splits.values()), {})
    lengths = {
        "passage": estimate_mean_tokens(passages, typical["passage"], language),
        "query": estimate_mean_tokens(queries, typical["query"], language),
    }
    return Volumes(
        passages=passages["count"],
        queries={name: split["queries"] for name, split in splits.items()},
        lengths=lengths,
        counted=True,
        positives={
            name: round(split["positives"]["mean"] * split["queries"])
            for name, split in judged.items()
        },
    )


def _measure_entry(stage: Stage, entry: Dataset, typical: Mapping[str, float]) -> Volumes:
    """Return the size that the catalogue states, after splits are drawn from others and cut."""
    counts = entry.counts or {}
    splits = [name for name in counts if name != "passages" and not name.endswith("_qrels")]
    queries: dict[str, int] = {name: counts[name] for name in splits}

    for source, target in (("test", "train"), ("train", "dev")):
        key = f"{target}_from_{source}"
        share = stage.values.get(key)
        if share and source in queries and target not in queries:
            moved = min(
                round(share * queries[source]), stage.values.get(f"{key}_most") or queries[source]
            )
            queries[source] -= moved
            queries[target] = moved

    for name, count in queries.items():
        most = getattr(entry, f"{name}_queries", None)
        queries[name] = min(count, most or count)

    judged = [name for name in queries if f"{name}_qrels" in counts]
    positives = {
        name: round(counts[f"{name}_qrels"] * queries[name] / max(1, counts[name]))
        for name in judged
    }
    return Volumes(
        counts["passages"], queries, {**typical, **(entry.tokens or {})}, positives=positives
    )


def estimate_mean_tokens(
    counted: Mapping[str, Any], typical: float, language: str, statistic: str = "mean"
) -> float:
    """Return mean tokens (or `p90`, …) from counted words, or from characters in languages without spaces.

    If the language is not given, very long words indicate such a language.
    """
    words = (counted.get("words") or {}).get(statistic, 0)
    characters = (counted.get("characters") or {}).get(statistic, 0)
    if not words:
        return typical
    if language in UNSPACED or characters > 12 * words:
        return float(characters)
    return float(words * TOKENS_PER_WORD)


def params_of(stage: Stage) -> Any:
    """Return a stage's parameters as its kind's model, or unchanged if a plugin's kind has no model."""
    model = KINDS[stage.kind].params
    return stage.params_as(model) if model else stage.params


@dataclass(frozen=True)
class Work:
    """A stage's work."""

    # the kind of its model operations, one of `MODEL_WORK`; None without a model
    kind: str | None = None
    operations: float = 0.0  # floating-point operations of models
    # (a rate's name, the amount of work at that rate), for work without a model; shards share it
    rows: tuple[tuple[str, float], ...] = ()
    # the same for work of a single job, before the shards begin or after they have ended
    alone: tuple[tuple[str, float], ...] = ()
    memory: float = PROCESS_BYTES  # bytes at the peak
    disk: float = 0.0  # bytes of the artifact, without those of a run
    run: float = 0.0  # bytes of the run that is written
    steps: int | None = None  # of an optimizer
    width: int = 0  # numbers per token in the models' layers; 0 where no time depends on it
    # numbers processed in addition to products: those of a vocabulary's gradient, of logits
    updated: float = 0.0


@dataclass(frozen=True)
class Setting:
    """What the work of a stage depends on in addition to its parameters; see also `Hardware`."""

    sizes: Callable[[Stage], Volumes]  # of a dataset stage's collection
    shape: Callable[[Stage], EncoderShape]  # of the encoder that a stage's models descend from
    execution: ExecutionSettings
    activation_bytes: int = 2
    held: int = 0

    def size(self, stage: Stage) -> Volumes:
        """Return the size of the collection that a stage is made from, or that it makes."""
        return self.sizes(stage.upstream.get("dataset", stage))

    def passages(self, stage: Stage) -> int:
        """Return how many passages that collection has."""
        return self.size(stage).passages

    def queries(self, stage: Stage, split: str = "") -> int:
        """Return how many queries that collection has in a split, by default in the stage's own."""
        return self.size(stage).queries.get(split or params_of(stage).split, 0)

    def positives(self, stage: Stage, split: str) -> int:
        """Return how many relevant passages these queries have together; one each if that is not known."""
        return self.size(stage).positives.get(split, self.queries(stage, split))

    def run(self, stage: Stage, depth: int = 0, split: str = "") -> float:
        """Return the bytes of a run, by default as deep as the stage's parameters set.

        They are those of its columns, and of its text if it is evaluated.
        """
        split = split or params_of(stage).split
        line = _BYTES_PER_LINE if split in LEARNED else _BYTES_PER_LINE + _BYTES_PER_TREC_LINE
        return self.queries(stage, split) * (depth or params_of(stage).depth) * line

    def dimension(self, embeddings: Stage) -> int:
        """Return how many numbers each row has that a stage stores for texts."""
        model = params_of(embeddings.upstream["model"])
        dim: int = model.representation.row_size or model.dim or 0
        return dim or self.shape(embeddings.upstream["tokens"]).hidden

    def lengths(self, tokens: Stage) -> tuple[float, float]:
        """Return the mean tokens of a query and of a passage under a `tokens` stage, without special tokens.

        Passages are counted if the stage is finished.
        """
        size, params = self.size(tokens), params_of(tokens)
        query, passage = (
            size.tokens("query", params.query_length),
            size.tokens("passage", params.passage_length),
        )
        manifest = read_finished(tokens.folder)
        if manifest and manifest.facts.get("passages"):
            passage = manifest.facts["passage_tokens"] / manifest.facts["passages"]
        return query, passage

    def input_operations(self, tokens: Stage) -> float:
        """Return the operations that a token's input vector takes; 0 if it is looked up, as in most encoders.

        Words that occur twice in a batch are computed once; the result is for a batch in which no word does.
        """
        above: Stage | None = tokens
        while above:
            if above.kind in input_cost:
                return input_cost[above.kind](above, self.shape(tokens).hidden)
            above = above.upstream.get("encoder") or above.upstream.get("start")
        return 0.0

    def pair_length(self, tokens: Stage) -> float:
        """Return the mean tokens of a pair under a `tokens` stage, special ones included."""
        return min(sum(self.lengths(tokens)) + PAIR_SPECIAL, params_of(tokens).pair_length or inf)


CostFunction = Callable[[Stage, Setting], Work]
# by kind
cost: Registry[CostFunction] = Registry("cost function", "cost", "extras.estimate", decides=False)
# By kind of stage that makes encoders with computed input vectors: `(encoder, hidden) -> operations` per token.
input_cost: Registry[Callable[[Stage, int], float]] = Registry(
    "input cost", "input_cost", "extras.estimate", decides=False
)
# By source: `(stage, whole, beside) -> size` of a derived dataset. `whole` is that of the dataset that it is made of,
# `beside` that of the dataset whose queries it also has, if any.
derived_size: Registry[Callable[[Stage, Volumes, Volumes | None], Volumes]] = Registry(
    "size of a dataset", "derived_size", "extras.estimate", decides=False
)
