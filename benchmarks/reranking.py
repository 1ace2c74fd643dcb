"""Scoring pairs by a cross-encoder, over stored token ids, against sentence-transformers' `CrossEncoder.predict`.

    python benchmarks/reranking.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]

What the lines say: benchmarks/turns.py. Ours is the stage `tokens`, and then what re-ranking, denoising and
distillation ask for scores, which keeps them on disk. Every passage occurs in one pair alone, so that no side tokenises
one twice.
"""

import shutil
from pathlib import Path

import numpy as np
import stages
import torch
from turns import Work, take

from tandem.models.device import device

SIZE = 40  # passages of a query
LENGTHS = {"query_length": 128, "passage_length": 380}  # nothing is cut
NOTE = """`python benchmarks/reranking.py`: {count:,} pairs of {texts}, 40 passages a query; a cross-encoder with the
encoder all-MiniLM-L6-v2, unless `--encoder` names another; ours and the peer in turn, medians of {rounds} rounds. Ours
tokenises, scores and stores; the peer, `CrossEncoder.predict` with its defaults, keeps its scores in memory."""


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """So many pairs."""
    stages.prepare(folder, encoder, "cross", -(-count // SIZE), SIZE, made_up)


def ours(folder: Path, precision: str) -> int:
    """Token ids, then scores."""
    shutil.rmtree(folder / "pairs", ignore_errors=True)
    return len(scores(folder, precision))


def scores(folder: Path, precision: str) -> np.ndarray:
    """Our scores of all pairs."""
    from tandem.models import tokenisation
    from tandem.retrieval.pair_scores import PairScores

    tokens = stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    budget = 4096 if device().type == "cpu" else 32768
    passages = np.arange(tokens.manifest.facts["passages"])
    model = stages.open_prepared(folder, "model")["model"]
    return PairScores(model, tokens, precision, budget).score(passages // SIZE, passages)


def peer(folder: Path, precision: str) -> int:
    """The same pairs from memory into memory."""
    return len(theirs(folder, precision))


def theirs(folder: Path, precision: str) -> torch.Tensor:
    """The peer's logits."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(stages.place(folder, "model") / "cross"))
    model.max_seq_length = 512
    if precision == "bf16":
        model = model.bfloat16()
    examples = stages.texts(folder)
    pairs = [
        (query, passage)
        for query, passages in zip(examples.queries, examples.passages, strict=True)
        for passage in passages
    ]
    logits = model.predict(
        pairs, activation_fn=torch.nn.Identity(), convert_to_tensor=True, show_progress_bar=False
    )
    return logits.float().cpu()


def difference(folder: Path, precision: str) -> float:
    """Largest difference of a score, ours from the peer's in fp32."""
    return float(np.abs(scores(folder, precision) - theirs(folder, "fp32").numpy()).max())


if __name__ == "__main__":
    sides = {"ours": ours, "peer": peer}
    take(Work("Re-ranking", "rerank", "pairs", (4000, 240), prepare, sides, difference, NOTE))
