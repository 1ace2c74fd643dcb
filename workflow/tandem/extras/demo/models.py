"""Dual encoders and cross-encoders in a worker: they read a query's text and, for passages, the stored token ids."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from tandem.cluster.progress import Progress
from tandem.config.execution import Execution
from tandem.extras.demo.workers import PartData, Question, open_inputs
from tandem.models.acceleration import accelerate
from tandem.models.device import resolve_precision, use_workers
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import Tokens
from tandem.retrieval.encode import Encoder
from tandem.retrieval.encode_tokens import TermEncoder, TokenEncoder
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_part, require_tokenizer
from tandem.retrieval.pair_scores import load_scorer, scoring_part, tokenizer_folder
from tandem.stages.retrieval import EmbeddingsParams
from tandem.stages.training import TokensParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job

FEW = 1  # tokens of a batch: a cross-encoder then computes its least number of pairs at once
WARM_UP: Question = {"query": "warm up", "rows": [0]}
ENCODERS = {"embeddings": Encoder, "term_weights": TermEncoder, "token_vectors": TokenEncoder}


def open_part(part: PartData, threads: int, _: int) -> "Dual | Crosses":
    """A dual encoder or cross-encoders, warmed up; `threads` are torch's."""
    use_workers(threads)
    model = (Dual if part["column"] == "DE" else Crosses)(open_inputs(part), part["params"])
    model.answer(WARM_UP)
    return model


class Queries:
    """Turns a query's text into token ids as the stage `tokens` does; refuses another tokenizer than that stage's."""

    def __init__(self, folder: Path, tokens: Artifact) -> None:
        require_tokenizer(folder, tokens)
        self.tokenizer, self.length = load_tokenizer(folder), tokens.params["query_length"]
        self.prompt = tokens.params_as(TokensParams).prompts.get("query", "")

    def ids(self, text: str) -> Ids:
        """Token ids without special tokens, cut to the query length."""
        tokens = self.tokenizer(self.prompt + text, add_special_tokens=False, truncation=True, max_length=self.length)
        return np.array(tokens["input_ids"], np.int64)


class Dual:
    """A dual encoder's query tower, as the stage `embeddings` runs it: `model` with `tokens` of `dataset`."""

    def __init__(self, inputs: dict[str, Artifact], params: dict[str, Any]) -> None:
        encode = {key: params[key] for key in ("batch_tokens", "precision", "dtype")}  # of the passages
        stage = EmbeddingsParams(side="queries", **encode)
        stage = stage.model_copy(update={"dtype": stage.query_dtype})
        self.encoder = ENCODERS[inputs["passages"].kind](Job("embeddings", Path(), stage, inputs))
        folder = inputs["model"].folder / "dual" / ("shared" if self.encoder.model.shared else "query")
        self.queries = Queries(folder, inputs["tokens"])

    def answer(self, question: Question) -> Any:
        """The query's vector, its weight for each entry of the vocabulary, or a list of its tokens' vectors."""
        with Progress("", 1, "queries", quiet=True) as progress:
            vectors = self.encoder.encode(Ragged.of([self.queries.ids(question["query"])]), progress)
        dense = vectors.toarray() if issparse(vectors) else vectors
        return (dense if isinstance(self.encoder, TokenEncoder) else dense[0]).tolist()


class Crosses:
    """Cross-encoders whose logits are averaged: `model` with `tokens`, or `judge.0` with `judge_tokens.0`, …."""

    def __init__(self, inputs: dict[str, Artifact], params: dict[str, Any]) -> None:
        numbers = sorted(int(role.split(".")[1]) for role in inputs if role.startswith("judge."))
        pairs = [(inputs[f"judge.{n}"], inputs[f"judge_tokens.{n}"]) for n in numbers]
        self.members = [Cross(*pair, params) for pair in pairs or [(inputs["model"], inputs["tokens"])]]

    def answer(self, question: Question) -> list[float]:
        """The mean of the logits of the query with each of the passages at `rows`."""
        logits = (member.logits(question["query"], question["rows"]).astype(np.float64) for member in self.members)
        total: Any = sum(logits)
        values: list[float] = (total / len(self.members)).astype(np.float32).tolist()
        return values


class Cross:
    """One cross-encoder, or a dual encoder whose representation scores pairs."""

    def __init__(self, model: Artifact, tokens: Artifact, params: dict[str, Any]) -> None:
        folder, self.mode = require_part(model, scoring_part(model)), resolve_precision(params["precision"])
        self.model = load_scorer(folder)
        accelerate(self.model, Execution(attention="padded"), params["batch_tokens"], self.mode, training=False)
        self.queries, self.tokens = Queries(tokenizer_folder(folder), tokens), Tokens.open(tokens)

    def logits(self, query: str, rows: list[int]) -> Array:
        """Scores of a query's text with the passages at some rows, shape (passages,), float32."""
        passages = [self.tokens.passages[row] for row in rows]
        queries = [self.queries.ids(query)] * len(passages)
        return self.model.score(queries, passages, self.tokens.template, self.mode, FEW)
