"""Dual encoders and cross-encoders in a worker: they read a query's text and, for passages, the stored token ids."""

from pathlib import Path
from typing import Any

import numpy as np

from tandem.artifact import Artifact, Job, open_artifact
from tandem.config.execution import Execution
from tandem.models.cross import CrossEncoder
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.execution import accelerate
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import Tokens
from tandem.progress import Progress
from tandem.retrieval.encode import Encoder
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_part, require_tokenizer
from tandem.stages.retrieval import EmbeddingsParams

FEW = 1  # tokens of a batch: a cross-encoder then computes its least number of pairs at once
WARM_UP = {"query": "warm up", "rows": [0]}


class Models:
    """Models, by part.

    Args:
        parts: key → a part's column, stage parameters and the folders it reads.
        workers: threads of torch.
    """

    def __init__(self, parts: dict[str, Any], workers: int) -> None:
        use_workers(workers)
        self.parts: dict[str, Dual | Crosses] = {}
        for key, told in parts.items():
            inputs = {role: open_artifact(Path(folder), verify=False) for role, folder in told["in"].items()}
            self.parts[key] = (Dual if told["column"] == "DE" else Crosses)(inputs, told["params"])
            self.parts[key].answer(WARM_UP)

    def answer(self, asked: dict[str, Any]) -> list[float]:
        """A dual encoder's vector of `query`, or cross-encoders' logits of `query` with the passages at `rows`."""
        return self.parts[asked["part"]].answer(asked)


class Queries:
    """How a query's text becomes token ids: as in the stage `tokens`, by the tokenizer of a model's folder.

    Raises:
        UserError: the model's tokenizer is not the one that made the token ids.
    """

    def __init__(self, folder: Path, tokens: Artifact) -> None:
        require_tokenizer(folder, tokens)
        self.tokenizer, self.length = load_tokenizer(folder), tokens.params["query_length"]

    def ids(self, text: str) -> Ids:
        """Token ids without special tokens, cut to the query length."""
        made = self.tokenizer(text, add_special_tokens=False, truncation=True, max_length=self.length)
        return np.array(made["input_ids"], np.int64)


class Dual:
    """A dual encoder's query tower, as the stage `embeddings` runs it: `model` with `tokens` of `dataset`."""

    def __init__(self, inputs: dict[str, Artifact], params: dict[str, Any]) -> None:
        how = EmbeddingsParams(side="queries", batch_tokens=params["batch_tokens"], precision=params["precision"])
        self.encoder = Encoder(Job("embeddings", Path(), how, inputs))
        folder = inputs["model"].folder / "dual" / ("shared" if self.encoder.model.shared else "query")
        self.queries = Queries(folder, inputs["tokens"])

    def answer(self, asked: dict[str, Any]) -> list[float]:
        """The query's vector, fp16."""
        with Progress("", 1, "queries", quiet=True) as progress:
            made = self.encoder.encode(Ragged.of([self.queries.ids(asked["query"])]), progress)
        values: list[float] = made[0].tolist()
        return values


class Crosses:
    """Cross-encoders whose logits are averaged: `model` with `tokens`, or `judge.0` with `judge_tokens.0`, …."""

    def __init__(self, inputs: dict[str, Artifact], params: dict[str, Any]) -> None:
        numbers = sorted(int(role.split(".")[1]) for role in inputs if role.startswith("judge."))
        pairs = [(inputs[f"judge.{n}"], inputs[f"judge_tokens.{n}"]) for n in numbers]
        self.each = [Cross(*pair, params) for pair in pairs or [(inputs["model"], inputs["tokens"])]]

    def answer(self, asked: dict[str, Any]) -> list[float]:
        """The mean of the logits of the query with each of the passages at `rows`."""
        total: Any = sum(one.logits(asked["query"], asked["rows"]).astype(np.float64) for one in self.each)
        values: list[float] = (total / len(self.each)).astype(np.float32).tolist()
        return values


class Cross:
    """One cross-encoder."""

    def __init__(self, model: Artifact, tokens: Artifact, params: dict[str, Any]) -> None:
        folder, self.mode = require_part(model, "cross"), resolve_precision(params["precision"])
        self.model = CrossEncoder.load(folder).to(device())
        accelerate(self.model, Execution(attention="padded"), params["batch_tokens"], self.mode, training=False)
        self.queries, self.tokens = Queries(folder, tokens), Tokens.open(tokens)

    def logits(self, query: str, rows: list[int]) -> Array:
        """Scores of a query's text with the passages at some rows, shape (passages,), float32."""
        passages = [self.tokens.passages[row] for row in rows]
        asked = [self.queries.ids(query)] * len(passages)
        return self.model.score(asked, passages, self.tokens.template, self.mode, FEW)
