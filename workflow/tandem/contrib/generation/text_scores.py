"""Stage `score_generated`: a cross-encoder's or a dual encoder's score of each generated text with its passage."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.cluster.work import Parts
from tandem.config.settings import Execution
from tandem.contrib.generation.options import SCORES_FILE, ScoreGeneratedParams
from tandem.data.collection import Collection
from tandem.data.rows import index_passages
from tandem.data.tables import open_parquet
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.device import resolve_precision, use_workers
from tandem.models.dual import DualEncoder
from tandem.models.hub import add_markers, load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokenisation import Side
from tandem.models.tokens import Tokens
from tandem.retrieval.inputs import (
    require_dataset,
    require_part,
    require_prompts,
    require_tokenizer,
)
from tandem.retrieval.pair_scores import find_tokenizer, load_scorer
from tandem.stages.base import Json
from tandem.stages.data import TEXTS_FILE
from tandem.stages.training import TokensParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

SCHEMA = pa.schema([("score", pa.float32())])
ScoreJob = Job[ScoreGeneratedParams]


class Texts(NamedTuple):
    """Some generated texts: their passages' ids, their numbers, and the texts."""

    ids: list[str]
    numbers: Ids
    texts: list[str]


def count_texts(generated: Artifact) -> int:
    """Return how many texts a `generated` artifact holds."""
    return int(pq.read_metadata(generated.path(TEXTS_FILE)).num_rows)


def iter_texts(generated: Artifact, span: range) -> Iterator[Texts]:
    """Yield the texts in the rows `span` of a `generated` artifact, a row group at a time."""
    with open_parquet(generated.path(TEXTS_FILE)) as file:
        start = 0
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            if start < span.stop and stop > span.start:
                first, last = max(span.start, start) - start, min(span.stop, stop) - start
                table = file.read_row_group(group, columns=["id", "number", "text"]).slice(
                    first, last - first
                )
                ids, numbers, texts = (table[name] for name in ("id", "number", "text"))
                yield Texts(ids.to_pylist(), numbers.to_numpy(), texts.to_pylist())
            start = stop


class Scoring:
    """The texts that a job scores, part by part, and the model, which is loaded for the first missing part."""

    def __init__(self, job: ScoreJob) -> None:
        require_dataset(job, "generated", "tokens")
        self.job, self.generated, self.source = job, job.inputs["generated"], job.inputs["tokens"]
        if self.generated.params["side"] != "passages":
            raise UserError(
                f"{self.generated.folder}: holds texts of queries; texts of passages are scored"
            )
        self.parts, self.opened = Parts(job, ".parquet"), False

    def open(self) -> None:
        """Load the model, and check that it reads these token ids."""
        job, params = self.job, self.job.params
        use_workers(job.execution.workers)
        artifact = job.inputs["model"]
        folder = require_part(artifact, "cross" if (artifact.folder / "cross").is_dir() else "dual")
        require_tokenizer(find_tokenizer(folder), self.source)
        self.model, self.mode = load_scorer(folder).eval(), resolve_precision(params.precision)
        self.tokens = Tokens.open(self.source)
        options = self.source.params_as(TokensParams).model_copy(
            update={"query_length": params.query_length}
        )
        tokenizer = load_tokenizer(find_tokenizer(folder))
        add_markers(tokenizer, options.markers)
        self.queries = Side("query", options, PlainTextTokenizer(tokenizer))
        if isinstance(self.model, DualEncoder):
            require_prompts(self.model.prompts, self.model.options.side_markers, self.source)
        self.model.check_lengths(
            params.query_length, options.passage_length, self.tokens.template, str(folder)
        )
        accelerate(
            self.model,
            Execution(attention="padded"),
            params.batch_tokens,
            self.mode,
            training=False,
        )
        self.docs = index_passages(Collection(job.inputs["dataset"]))
        self.opened = True

    def write_part(self, span: range, progress: Progress, path: Path) -> Json:
        """Write the scores of a part's texts; NaN for empty texts, and for those whose number is too high."""
        if not self.opened:
            self.open()
        scores = [self.score(texts, progress) for texts in iter_texts(self.generated, span)]
        column = pa.array(np.concatenate([np.empty(0, np.float32), *scores]), pa.float32())
        pq.write_table(pa.table([column], schema=SCHEMA), path)
        return {"scored": int(np.isfinite(column.to_numpy()).sum())}

    def score(self, texts: Texts, progress: Progress) -> Ids:
        """Return the scores of some texts, float32, shape (texts,)."""
        scores = np.full(len(texts.texts), np.nan, np.float32)
        # a part from which no passage is read has no texts; an empty array has no dtype of its own
        is_written = np.array([bool(text) for text in texts.texts], bool)
        chosen = np.flatnonzero((texts.numbers < self.job.params.number) & is_written)
        if len(chosen):
            ids = self.queries.tokenise([texts.texts[row] for row in chosen])
            rows = self.docs.rows([texts.ids[row] for row in chosen])
            queries = Ragged.of([np.array(row, np.int64) for row in ids])
            passages, options = (
                self.tokens.passages.take(rows),
                (self.mode, self.job.params.batch_tokens),
            )
            scores[chosen] = self.model.score(queries, passages, self.tokens.template, *options)
            if not np.isfinite(scores[chosen]).all():
                folder = self.job.inputs["model"].folder
                raise UserError(
                    f"{folder}: gives a score that is not a number; the model has diverged"
                )
        progress.add(len(scores))
        return scores

    def complete(self) -> dict[int, Json]:
        """Write this job's missing parts; return the facts of each."""
        return self.parts.complete(count_texts(self.generated), self.write_part)


def run_shard(job: ScoreJob) -> Json:
    """Score every n-th part, beginning with this shard's number."""
    return {"parts": list(Scoring(job).complete())}


def run(job: ScoreJob) -> None:
    """Write scores.parquet: for each row of generated.parquet its score, NaN if there is none.

    Inputs: dataset, generated, tokens, and model, a cross-encoder or a dual encoder of any representation.
    """
    scoring = Scoring(job)
    parts = scoring.complete()
    with writing(job) as draft:
        with pq.ParquetWriter(draft.path(SCORES_FILE), SCHEMA, compression="zstd") as writer:
            for number in parts:
                writer.write_table(pq.read_table(scoring.parts.path(number)))
        draft.facts["scored"] = sum(facts["scored"] for facts in parts.values())
    scoring.parts.remove()
