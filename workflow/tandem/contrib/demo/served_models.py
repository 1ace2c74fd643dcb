"""Dual encoders and cross-encoders in a worker; they read a query's text and the stored token ids of passages."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from tandem.cluster.progress import Progress
from tandem.config.settings import Execution
from tandem.extras.serving import WORKER_THREADS, PartQuestion, Served, require_pieces
from tandem.models.acceleration import accelerate
from tandem.models.device import resolve_precision, use_workers
from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokenisation import Side
from tandem.models.tokens import Tokens
from tandem.retrieval.inputs import require_part, require_tokenizer
from tandem.retrieval.pair_scores import find_scoring_part, find_tokenizer, load_scorer
from tandem.stages import declaration
from tandem.stages.retrieval import EmbeddingsParams, side_encoder
from tandem.stages.training import TokensParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job

# tokens of a batch, so few that a cross-encoder computes its least number of pairs at once
_SMALLEST_BATCH_TOKENS = 1


def open_model(part: Served) -> "Dual | Crosses":
    """Load a dual encoder or cross-encoders, and warm them up."""
    use_workers(WORKER_THREADS)
    model = Dual(part) if part.column == "DE" else Crosses(part)
    model.answer({"query": "warm up", "rows": [0]})
    return model


class QueryTokenizer:
    """Converts a query's text to token ids as the stage `tokens` does; refuses a tokenizer that is not that stage's."""

    def __init__(self, folder: Path, tokens: Artifact) -> None:
        require_pieces(tokens, "tandem search")
        require_tokenizer(folder, tokens)
        self.side = Side(
            "query", tokens.params_as(TokensParams), PlainTextTokenizer(load_tokenizer(folder))
        )

    def ids(self, text: str) -> Ids:
        """Return token ids without special tokens, cut to the query length."""
        return np.array(self.side.tokenise([text])[0], np.int64)


class Dual:
    """Encode queries with a dual encoder's tower as the stage `embeddings` does: `model` with `tokens` of `dataset`."""

    def __init__(self, part: Served) -> None:
        # the parameters with which the passages were encoded
        encode = {key: part.params[key] for key in ("batch_tokens", "precision", "dtype")}
        stage = EmbeddingsParams(side="queries", **encode)
        stage = stage.model_copy(update={"dtype": stage.query_dtype})
        stored = declaration(part.inputs["passages"].kind).vectors
        self.encoder = side_encoder[stored](Job("embeddings", Path(), stage, part.inputs))
        tower = "shared" if self.encoder.model.shared else "query"
        self.queries = QueryTokenizer(
            part.inputs["model"].folder / "dual" / tower, part.inputs["tokens"]
        )

    def answer(self, question: PartQuestion) -> Any:
        """Return the query's vector, its weight for each entry of the vocabulary, or a list of its tokens' vectors."""
        with Progress("", 1, "queries", quiet=True) as progress:
            vectors = self.encoder.encode(
                Ragged.of([self.queries.ids(question["query"])]), progress
            )
        dense = vectors.toarray() if issparse(vectors) else vectors
        # if rows are not texts but tokens, all rows belong to the one query
        return (dense if self.encoder.unit else dense[0]).tolist()


class Crosses:
    """Cross-encoders whose logits are averaged: `model` with `tokens`, or `judge.0` with `judge_tokens.0`, ….

    A dual encoder whose representation scores pairs may take a cross-encoder's place.
    """

    def __init__(self, part: Served) -> None:
        job = Job("rerank", Path(), part.params, part.inputs)
        judges = list(zip(job.many("judge"), job.many("judge_tokens"), strict=True))
        self.mode, self.members = resolve_precision(part.params["precision"]), []
        for model, tokens in judges or [(part.inputs["model"], part.inputs["tokens"])]:
            folder = require_part(model, find_scoring_part(model))
            scorer, budget = load_scorer(folder), part.params["batch_tokens"]
            accelerate(scorer, Execution(attention="padded"), budget, self.mode, training=False)
            self.members.append(
                (scorer, QueryTokenizer(find_tokenizer(folder), tokens), Tokens.open(tokens))
            )

    def answer(self, question: PartQuestion) -> list[float]:
        """Return the mean of the logits of the query with each of the passages at `rows`."""
        total: Any = 0.0
        for scorer, queries, tokens in self.members:
            passages = tokens.passages.take(np.array(question["rows"], np.int64))
            query = [queries.ids(question["query"])] * len(passages)
            total += scorer.score(
                query, passages, tokens.template, self.mode, _SMALLEST_BATCH_TOKENS
            ).astype(np.float64)
        values: list[float] = (total / len(self.members)).astype(np.float32).tolist()
        return values
