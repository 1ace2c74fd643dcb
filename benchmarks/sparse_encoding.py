"""Encoding passages as weights of terms, by the stages, against sentence-transformers' `SparseEncoder.encode`.

    python benchmarks/sparse_encoding.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER]
                                         [--out FILE]

For the meaning of the lines, see benchmarks/turns.py. Ours is the stages `tokens` and `term_weights` as they are: they
read Parquet, and write token ids and blocks of fp16 weights with their checksums. The differences are those of the
weights before they are rounded to fp16. The encoder is SPLADE-tiny, which examples/splade_tiny.py writes into
data/splade-tiny.
"""

from pathlib import Path

import numpy as np
import stages
import torch
from turns import Work, take

from tandem.models.device import device

LENGTHS = {"query_length": 30, "passage_length": 126}  # 32 and 128 with special tokens
SPLADE_TINY = Path("data/splade-tiny")
NOTE = """`python benchmarks/sparse_encoding.py`: {count:,} passages of {texts}, at most 128 tokens; SPLADE-tiny, unless
`--encoder` names another; ours and the peer in turn, medians of {rounds} rounds. Ours tokenises, encodes and writes as
the stages do; the peer, `SparseEncoder.encode` with its defaults, keeps its sparse vectors in memory."""


def splade_tiny(folder: Path) -> Path:
    """Return the folder of SPLADE-tiny, which examples/splade_tiny.py writes."""
    if not SPLADE_TINY.is_dir():
        raise SystemExit(
            f"{SPLADE_TINY}: no such folder; python examples/splade_tiny.py {SPLADE_TINY} writes it"
        )
    return SPLADE_TINY


def params(precision: str) -> dict[str, object]:
    """Return the parameters of the stage `term_weights`, with a batch size that suits the device."""
    budget = 4096 if device().type == "cpu" else 32768
    return {"side": "passages", "block": 16384, "batch_tokens": budget, "precision": precision}


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """Write `count` passages, with a query for each."""
    stages.prepare(folder, encoder, "sparse", count, 1, made_up)


def ours(folder: Path, precision: str) -> int:
    """Run both stages; return the number of passages."""
    from tandem.models import tokenisation
    from tandem.retrieval import encode

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    artifact = stages.stage(
        folder, "term_weights", encode.run, params(precision), "dataset", "model", "tokens"
    )
    return int(artifact.manifest.facts["passages"])


def peer(folder: Path, precision: str) -> int:
    """Encode the same passages by the peer, in memory; return their number."""
    return len(theirs(folder, precision))


def theirs(folder: Path, precision: str) -> torch.Tensor:
    """Return the peer's weights, a sparse tensor."""
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(stages.place(folder, "model") / "dual/shared"))
    model.max_seq_length = 128
    if precision == "bf16":
        model = model.bfloat16()
    passages = [group[0] for group in stages.texts(folder).passages]
    return model.encode(passages, show_progress_bar=False)


def difference(folder: Path, precision: str) -> float:
    """Return the largest difference between our weight and the peer's in fp32."""
    from tandem.models import tokenisation
    from tandem.models.dual import encode_all
    from tandem.retrieval.encode import TermEncoder
    from tandem.store.job import Job

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    inputs = stages.open_prepared(folder, "dataset", "model", "tokens")
    encoder = TermEncoder(
        Job("term_weights", stages.place(folder, "term_weights"), params(precision), inputs)
    )
    expected = theirs(folder, "fp32").to_dense().float().cpu().numpy()
    texts = encoder.read(range(len(expected)))
    weights = encode_all(
        encoder.model, encoder.tower, texts, encoder.template, encoder.mode, encoder.budget
    )
    return float(np.abs(weights.numpy() - expected).max())


if __name__ == "__main__":
    sides = {"ours": ours, "peer": peer}
    take(
        Work(
            "Encoding weights of terms",
            "weigh",
            "passages",
            (1000, 64),
            prepare,
            sides,
            difference,
            NOTE,
            splade_tiny,
        )
    )
