"""Score (query, passage) pairs by cross-encoders, for denoising, distillation and re-ranking.

Scores are stored next to the dataset's artifacts, in `pairs/<model's key>-<digest>/`. All stages that score the same
token ids by the same model share them, and a killed stage resumes where it was.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tandem.cluster.progress import Progress
from tandem.config.representations import REPRESENTATIONS
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, load_cross, read_cross_form
from tandem.models.device import describe_kernels, device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder, load_dual
from tandem.models.folders import PAIR_LENGTH_STEP
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import (
    list_part_files,
    require_dataset,
    require_part,
    require_prompts,
    require_tokenizer,
)
from tandem.retrieval.pair_store import PairStore, pair_keys, store_name
from tandem.stages.retrieval import ScoringParams
from tandem.stages.training import CROSS_FORMS
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, load

TEXTS_BETWEEN_CHECKS = 2048  # texts that are scored before the clock is read again
# Pairs are stored after this time, or when there are this many.
_SECONDS = 30.0
PENDING = 1 << 15

_Scoring = TypeVar("_Scoring", bound=ScoringParams)


class PairScores:
    """Return a cross-encoder's logits of pairs of a `tokens` artifact; each is computed once and stored.

    A dual encoder whose representation scores pairs may stand in for the cross-encoder. Another `batch_tokens` may
    change a score's last bits.

    Attributes:
        computed: number of logits that were not yet stored.
    Raises:
        UserError: the model has no encoder that scores pairs, or another tokenizer.
    """

    def __init__(
        self, model: Artifact, tokens: Artifact, precision: str, batch_tokens: int
    ) -> None:
        self.part = find_scoring_part(model)
        self.folder = require_part(model, self.part)
        self.source = tokens
        require_tokenizer(find_tokenizer(self.folder), tokens)
        form = read_cross_form(self.folder) if self.part == "cross" else None
        self.tokens = open_tokens_of(form, tokens)
        self.mode = resolve_precision(precision)
        self.budget = batch_tokens
        self.lengths: tuple[int, int] = (
            tokens.params["query_length"],
            tokens.params["passage_length"],
        )
        self.computed = 0
        identity = {
            "model": list_part_files(model, self.part),
            "tokens": tokens.manifest.checksums,
            "precision": self.mode,
            "batch_tokens": self.budget,
            "device": describe_kernels(self.mode),
        }
        folder = tokens.folder.parent.parent / "pairs" / store_name(model.key, identity)
        if not (folder / "store.json").exists():
            write_json(
                folder / "store.json",
                {"model": model.key, "tokens": tokens.key, "made_from": identity},
            )
        self.store = PairStore(folder)

    def score(self, queries: Array, passages: Array, progress: Progress | None = None) -> Array:
        """Return the logits of pairs, float32, shape (pairs,); compute and store those that are not stored yet.

        Queries with the same tokens, for instance one that is in several splits, share their scores.

        Args:
            queries, passages: rows of each pair, shape (pairs,).
            progress: counts pairs, computed or looked up.
        """
        first_copies = self.first_copies[queries]
        keys, inverse = np.unique(pair_keys(first_copies, passages), return_inverse=True)
        scores = self.store.lookup(keys)
        missing = np.flatnonzero(np.isnan(scores))
        if progress:
            progress.add(len(queries) - len(missing))
        if len(missing):
            scores[missing] = self._compute(keys[missing], progress)
        return np.asarray(scores[inverse])

    def _compute(self, keys: Array, progress: Progress | None) -> Array:
        """Score pairs by the model, in order of their lengths, and store the scores from time to time."""
        model = self.model
        template = self.tokens.template
        read = model.adapt(template) if isinstance(model, CrossEncoder) else template
        queries = (keys >> np.uint64(32)).astype(np.int64)
        passages = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        texts = self.tokens.passages
        lengths = read.pair_lengths(
            self.tokens.queries.lengths(queries),
            texts.lengths(passages),
            texts.count_texts(passages),
        )
        order = np.argsort(-(-lengths // PAIR_LENGTH_STEP), kind="stable")
        scores = np.empty(len(keys), np.float32)
        stored = 0
        since = time.monotonic()
        # A document is read in windows, which count as texts.
        most_texts = int(texts.count_texts(passages).max(initial=1))
        step = max(1, TEXTS_BETWEEN_CHECKS // most_texts)
        for start in range(0, len(order), step):
            batch = order[start : start + step]
            pairs = self.tokens.queries.take(queries[batch]), texts.take(passages[batch])
            scores[batch] = model.score(*pairs, template, self.mode, self.budget)
            if not np.isfinite(scores[batch]).all():
                raise UserError(
                    f"{self.folder}: gives a score that is not a number; the model has diverged"
                )
            end = start + len(batch)
            if end == len(order) or end - stored >= PENDING or time.monotonic() - since > _SECONDS:
                self.store.append(keys[order[stored:end]], scores[order[stored:end]])
                stored = end
                since = time.monotonic()
            self.computed += len(batch)
            if progress:
                progress.add(len(batch), tokens=int(lengths[batch].sum()))
        return scores

    @cached_property
    def first_copies(self) -> Array:
        """Return for each query the first query with the same tokens, int64, shape (queries,)."""
        return self.tokens.queries.find_first_copies()

    @cached_property
    def model(self) -> CrossEncoder | DualEncoder:
        """Return the model, loaded only when a score is missing; refuse one that is not for these token ids."""
        model = load_scorer(self.folder)
        if isinstance(model, DualEncoder):
            require_prompts(model.prompts, model.options.side_markers, self.source)
        model.check_lengths(*self.lengths, self.tokens.template, str(self.folder))
        accelerate(model, Execution(attention="padded"), self.budget, self.mode, training=False)
        return model


def open_tokens_of(form: str | None, tokens: Artifact) -> Tokens:
    """Return the token ids of the passages that lists and runs name, as a form of cross-encoders reads them."""
    return Tokens.open(tokens) if form is None else load(CROSS_FORMS[form].open_tokens)(tokens)


def require_tokens(job: Job[Any], tokens: str, model: str) -> None:
    """Refuse token ids that are not of the texts that a model scores: those of `dataset`, or for some forms others."""
    cross = job.inputs[model].folder / "cross"
    form = read_cross_form(cross) if cross.is_dir() else None
    if form is None:
        require_dataset(job, tokens)
    else:
        load(CROSS_FORMS[form].check_tokens)(job, tokens, cross)


def find_scoring_part(model: Artifact) -> str:
    """Return the part of a model that scores pairs: `cross`, or `dual` if it has only a dual encoder that does."""
    dual = model.folder / "dual"
    is_dual = dual.is_dir() and not (model.folder / "cross").is_dir()
    return (
        "dual" if is_dual and REPRESENTATIONS[DualShape.read(dual).type].scores_pairs else "cross"
    )


def load_scorer(part: Path) -> CrossEncoder | DualEncoder:
    """Load the model in the folder of a `find_scoring_part` onto the device; refuse one that compares passages."""
    model = load_cross(part) if part.name == "cross" else load_dual(part)
    if isinstance(model, CrossEncoder) and model.options.passages > 1:
        raise UserError(
            f"{part}: compares two passages, and scores no single one; needed is a cross-encoder that does"
        )
    return model.to(device())


def find_tokenizer(part: Path) -> Path:
    """Return a folder with the tokenizer of a model's part; if there are two towers, both have the same tokenizer."""
    return min(path.parent for path in part.rglob("tokenizer.json"))


def open_judges(job: Job[Any]) -> list[PairScores]:
    """Return the scores of a stage's cross-encoders, maybe none: `judge.0` with `judge_tokens.0`, `judge.1`, …."""
    return [
        PairScores(model, tokens, job.params.precision, job.params.batch_tokens)
        for model, tokens in zip(job.many("judge"), job.many("judge_tokens"), strict=True)
    ]


def to_probability(logits: Array) -> Array:
    """Return σ(x) = 1 / (1 + e^-x), float64, without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -np.asarray(logits, np.float64))))


def average_probabilities(
    judges: Sequence[PairScores], queries: Array, passages: Array, progress: Progress | None = None
) -> Array:
    """Return the judges' mean of σ(logit), float32, shape (pairs,); `progress` counts every pair once per judge."""
    return _average([to_probability(judge.score(queries, passages, progress)) for judge in judges])


def average_logits(
    teachers: Sequence[PairScores],
    queries: Array,
    passages: Array,
    progress: Progress | None = None,
) -> Array:
    """Return the teachers' mean logits, float32, shape (pairs,); with one teacher exactly its own."""
    return _average(
        [teacher.score(queries, passages, progress).astype(np.float64) for teacher in teachers]
    )


def _average(values: Sequence[Array]) -> Array:
    """Return the mean of arrays of one shape, taken in float64, as float32."""
    total: Any = sum(values)
    return np.asarray((total / len(values)).astype(np.float32))


# a cross-encoder, and the query and passage rows of its pairs
Requests = Iterator[tuple[PairScores, Array, Array]]


def score_shard(
    job: Job[_Scoring], requests: Callable[[Job[_Scoring]], Requests]
) -> dict[str, object]:
    """Score this shard's share of the pairs that a stage will need, into the store from which the stage reads."""
    shard = job.execution.shard or 0
    shards = job.execution.shards
    use_workers(job.execution.workers)
    scored = 0
    with Progress(f"{job.kind} {job.key} · shard {shard} of {shards}", 0, "pairs") as progress:
        for scores, queries, passages in requests(job):
            mine = (queries + passages) % shards == shard
            before = scores.computed
            scores.score(queries[mine], passages[mine], progress)
            scored += scores.computed - before
    return {"scored": scored}
