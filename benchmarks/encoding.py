"""Encoding passages, by the stages `tokens` and `embeddings`, against sentence-transformers' `encode`.

    python benchmarks/encoding.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]
                                  [--also OpenVINO=PYTHON OpenVINO-int8=PYTHON ONNX-fp32=PYTHON ...]

For the meaning of the lines, see benchmarks/turns.py. Ours is the two stages as they are: they read Parquet, and write
token ids and blocks of fp16 vectors with their checksums. The differences are those of the vectors before they are
rounded to fp16. `backends.py` has further peers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import backends
import stages
import torch
from turns import Work, take

from tandem.models.device import device

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LENGTHS = {"query_length": 30, "passage_length": 126}  # 32 and 128 with special tokens
NOTE = """`python benchmarks/encoding.py`: {count:,} passages of {texts}, at most 128 tokens; all-MiniLM-L6-v2, unless
`--encoder` names another; ours and the peer in turn, medians of {rounds} rounds. Ours tokenises, encodes and writes as
the stages do; the peer, `SentenceTransformer.encode` with its defaults, keeps its vectors in memory."""


def params(precision: str) -> dict[str, object]:
    """Return the parameters of the stage `embeddings`, with a batch size that suits the device."""
    budget = 4096 if device().type == "cpu" else 32768
    return {"side": "passages", "block": 16384, "batch_tokens": budget, "precision": precision}


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """Write `count` passages, with a query for each."""
    stages.prepare(folder, encoder, "dual", count, 1, made_up)


def ours(folder: Path, precision: str) -> int:
    """Run both stages; return the number of passages."""
    from tandem.models import tokenisation
    from tandem.retrieval import encode

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    artifact = stages.stage(
        folder, "embeddings", encode.run, params(precision), "dataset", "model", "tokens"
    )
    return int(artifact.manifest.facts["passages"])


def read_passages(folder: Path) -> list[str]:
    """Return the texts that the peers encode; their input and output stay in memory."""
    return [group[0] for group in stages.texts(folder).passages]


def locate_model(folder: Path) -> Path:
    """Return the folder of the model that sentence-transformers reads."""
    return stages.place(folder, "model") / "dual/shared"


def load(folder: Path, **options: object) -> SentenceTransformer:
    """Return the model in a folder, with a greatest length of 128 tokens."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), **options)
    model.max_seq_length = 128
    return model


def encode_by_peer(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of sentence-transformers with its defaults."""
    model = load(locate_model(folder))
    if precision == "bf16":
        model = model.bfloat16()
    return model.encode(read_passages(folder), convert_to_tensor=True, show_progress_bar=False)


def encode_by_backend(folder: Path, side: str, precision: str) -> torch.Tensor:
    """Return the vectors of one of sentence-transformers' other backends."""
    model = backends.open_converted(
        load, locate_model(folder), folder.parent, side, precision, lambda: read_passages(folder)
    )
    return model.encode(read_passages(folder), convert_to_tensor=True, show_progress_bar=False)


def encode_by(folder: Path, side: str, precision: str) -> torch.Tensor:
    """Return the vectors of a side."""
    if side == "ours":
        return encode_by_ours(folder, precision)
    if side == "peer":
        return encode_by_peer(folder, precision)
    return encode_by_backend(folder, side, precision)


def count_by(side: str, folder: Path, precision: str) -> int:
    """Do the work of a peer; return the number of passages."""
    return len(encode_by(folder, side, precision))


def encode_by_ours(folder: Path, precision: str) -> torch.Tensor:
    """Return our vectors before they are rounded to fp16."""
    from tandem.models import tokenisation
    from tandem.models.dual import encode_all
    from tandem.retrieval.encode import SideEncoder
    from tandem.store.job import Job

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    inputs = stages.open_prepared(folder, "dataset", "model", "tokens")
    encoder = SideEncoder(
        Job("embeddings", stages.place(folder, "embeddings"), params(precision), inputs)
    )
    texts = encoder.read(range(len(read_passages(folder))))
    return encode_all(
        encoder.model, encoder.tower, texts, encoder.template, encoder.mode, encoder.budget
    )


def difference(folder: Path, precision: str) -> float:
    """Return the largest difference between a component of our vectors and of the peer's in fp32."""
    expected = encode_by_peer(folder, "fp32").float().cpu()
    return float((encode_by_ours(folder, precision) - expected).abs().max())


def cosine(folder: Path, side: str, precision: str) -> float:
    """Return the mean cosine of a side's vectors with the peer's in fp32."""
    vectors = encode_by(folder, side, precision).float().cpu()
    expected = encode_by_peer(folder, "fp32").float().cpu()
    return float(torch.nn.functional.cosine_similarity(vectors, expected).mean())


if __name__ == "__main__":
    take(
        Work(
            "Encoding",
            "encode",
            "passages",
            (4000, 256),
            prepare,
            backends.list_sides(ours, count_by),
            difference,
            NOTE,
            quality=("mean cosine with the peer in fp32", cosine),
        )
    )
