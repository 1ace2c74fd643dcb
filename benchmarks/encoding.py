"""Encoding passages, by the stages `tokens` and `embeddings`, against sentence-transformers' `encode`.

    python benchmarks/encoding.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]
                                  [--also OpenVINO=PYTHON]

What the lines say: benchmarks/turns.py. Ours is the two stages as they are: they read Parquet, and write token ids and
blocks of fp16 vectors with their checksums. The differences are those of the vectors before they are rounded to fp16.
OpenVINO is sentence-transformers' own backend of that name; PYTHON has optimum-intel, whose transformers are older.
"""

from pathlib import Path

import stages
import torch
from turns import Work, take

from tandem.models.device import device

LENGTHS = {"query_length": 30, "passage_length": 126}  # with special tokens 32 and 128
NOTE = """`python benchmarks/encoding.py`: {count:,} passages of {texts}, at most 128 tokens; all-MiniLM-L6-v2, unless
`--encoder` names another; ours and the peer in turn, medians of {rounds} rounds. Ours tokenises, encodes and writes as
the stages do; the peer, `SentenceTransformer.encode` with its defaults, keeps its vectors in memory."""


def params(precision: str) -> dict[str, object]:
    """Of the stage `embeddings`, a batch as large as suits the device."""
    budget = 4096 if device().type == "cpu" else 32768
    return {"side": "passages", "block": 16384, "batch_tokens": budget, "precision": precision}


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """So many passages, with a query each."""
    stages.prepare(folder, encoder, "dual", count, 1, made_up)


def ours(folder: Path, precision: str) -> int:
    """Both stages."""
    from tandem.models import tokenisation
    from tandem.retrieval import encode

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    artifact = stages.stage(folder, "embeddings", encode.run, params(precision), "dataset", "model", "tokens")
    return int(artifact.manifest.facts["passages"])


def peer(folder: Path, precision: str) -> int:
    """The same passages from memory into memory."""
    return len(theirs(folder, precision))


def theirs(folder: Path, precision: str) -> torch.Tensor:
    """The peer's vectors."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(stages.place(folder, "model") / "dual/shared"))
    model.max_seq_length = 128
    if precision == "bf16":
        model = model.bfloat16()
    passages = [group[0] for group in stages.texts(folder).passages]
    return model.encode(passages, convert_to_tensor=True, show_progress_bar=False)


def openvino(folder: Path, precision: str) -> int:
    """The same by OpenVINO; the warm-up before the clock converts the model."""
    from sentence_transformers import SentenceTransformer

    converted = folder.parent / "openvino"
    if not converted.is_dir():
        source = str(stages.place(folder, "model") / "dual/shared")
        SentenceTransformer(source, backend="openvino").save_pretrained(str(converted))
    hint = {"fp32": "f32", "bf16": "bf16"}[precision]
    options = {"ov_config": {"INFERENCE_PRECISION_HINT": hint}}
    model = SentenceTransformer(str(converted), backend="openvino", model_kwargs=options)
    model.max_seq_length = 128
    passages = [group[0] for group in stages.texts(folder).passages]
    return len(model.encode(passages, convert_to_tensor=True, show_progress_bar=False))


def difference(folder: Path, precision: str) -> float:
    """Largest difference of a vector's component, ours from the peer's in fp32."""
    from tandem.models import tokenisation
    from tandem.models.dual import encode_all
    from tandem.retrieval.encode import SideEncoder
    from tandem.store.job import Job

    stages.stage(folder, "tokens", tokenisation.run, LENGTHS, "dataset", "encoder")
    inputs = stages.open_prepared(folder, "dataset", "model", "tokens")
    encoder = SideEncoder(Job("embeddings", stages.place(folder, "embeddings"), params(precision), inputs))
    expected = theirs(folder, "fp32").float().cpu()
    texts = encoder.read(range(len(expected)))
    vectors = encode_all(encoder.model, encoder.tower, texts, encoder.template, encoder.mode, encoder.budget)
    return float((vectors - expected).abs().max())


if __name__ == "__main__":
    sides = {"ours": ours, "peer": peer, "OpenVINO": openvino}
    take(Work("Encoding", "encode", "passages", (4000, 256), prepare, sides, difference, NOTE))
