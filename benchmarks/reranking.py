"""Scoring pairs by a cross-encoder, over stored token ids, against sentence-transformers' `CrossEncoder.predict`.

    python benchmarks/reranking.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]
                                   [--also OpenVINO=PYTHON OpenVINO-int8=PYTHON ONNX-fp32=PYTHON ...]

For the meaning of the lines, see benchmarks/turns.py. Ours is the stage `tokens`, and then the code that scores pairs
for re-ranking, denoising and distillation, which stores the scores on disk. Every passage occurs in only one pair, so
that no side tokenises it twice. `backends.py` has further peers.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import backends
import numpy as np
import stages
import torch
from turns import Work, take

from tandem.models.device import device

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

SIZE = 40  # passages per query
LENGTHS = {"query_length": 128, "passage_length": 380}  # nothing is cut
NOTE = """`python benchmarks/reranking.py`: {count:,} pairs of {texts}, 40 passages a query; a cross-encoder with the
encoder all-MiniLM-L6-v2, unless `--encoder` names another; ours and the peer in turn, medians of {rounds} rounds. Ours
tokenises, scores and stores; the peer, `CrossEncoder.predict` with its defaults, keeps its scores in memory."""


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """Write `count` pairs."""
    stages.prepare(folder, encoder, "cross", -(-count // SIZE), SIZE, made_up)


def ours(folder: Path, precision: str) -> int:
    """Write token ids, then score the pairs; return the number of pairs."""
    shutil.rmtree(folder / "pairs", ignore_errors=True)
    return len(scores(folder, precision))


def scores(folder: Path, precision: str) -> np.ndarray:
    """Return our scores of all pairs."""
    from tandem.models import tokenisation
    from tandem.retrieval.pair_scores import PairScores

    tokens = stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    budget = 4096 if device().type == "cpu" else 32768
    passages = np.arange(tokens.manifest.facts["passages"])
    model = stages.open_prepared(folder, "model")["model"]
    return PairScores(model, tokens, precision, budget).score(passages // SIZE, passages)


def locate_model(folder: Path) -> Path:
    """Return the folder of the model that sentence-transformers reads."""
    return stages.place(folder, "model") / "cross"


def read_pairs(folder: Path) -> list[tuple[str, str]]:
    """Return the same pairs for the peers, whose input and output stay in memory."""
    examples = stages.texts(folder)
    groups = zip(examples.queries, examples.passages, strict=True)
    return [(query, passage) for query, passages in groups for passage in passages]


def load(folder: Path, **options: object) -> CrossEncoder:
    """Return the model in a folder, with a greatest length of 512 tokens."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), **options)
    model.max_seq_length = 512
    return model


def score_by(folder: Path, side: str, precision: str) -> torch.Tensor:
    """Return a peer's logits, in fp32."""
    if side == "peer":
        model = load(locate_model(folder))
        if precision == "bf16":
            model = model.bfloat16()
    else:
        model = backends.open_converted(
            load, locate_model(folder), folder.parent, side, precision, lambda: read_pairs(folder)
        )
    logits = model.predict(
        read_pairs(folder),
        activation_fn=torch.nn.Identity(),
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    return logits.float().cpu()


def count_by(side: str, folder: Path, precision: str) -> int:
    """Do the work of a peer; return the number of pairs."""
    return len(score_by(folder, side, precision))


def difference(folder: Path, precision: str) -> float:
    """Return the largest difference between our score of a pair and the peer's in fp32."""
    return float(np.abs(scores(folder, precision) - score_by(folder, "peer", "fp32").numpy()).max())


def correlate(folder: Path, side: str, precision: str) -> float:
    """Return Kendall's tau between a side's orders and the peer's in fp32, averaged over queries."""
    from scipy.stats import kendalltau

    side_scores = (
        scores(folder, precision) if side == "ours" else score_by(folder, side, precision).numpy()
    )
    expected = score_by(folder, "peer", "fp32").numpy()
    lists = zip(side_scores.reshape(-1, SIZE), expected.reshape(-1, SIZE), strict=True)
    return float(np.mean([kendalltau(ours, theirs).statistic for ours, theirs in lists]))


if __name__ == "__main__":
    take(
        Work(
            "Re-ranking",
            "rerank",
            "pairs",
            (4000, 240),
            prepare,
            backends.list_sides(ours, count_by),
            difference,
            NOTE,
            quality=("Kendall's tau with the peer in fp32", correlate),
        )
    )
