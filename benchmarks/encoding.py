"""Encoding passages, by the stages `tokens` and `embeddings`, against sentence-transformers' `encode`.

    python benchmarks/encoding.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]
                                  [--also OpenVINO=PYTHON OpenVINO-int8=PYTHON ONNX-fp32=PYTHON ...]

What the lines say: benchmarks/turns.py. Ours is the two stages as they are: they read Parquet, and write token ids and
blocks of fp16 vectors with their checksums. The differences are those of the vectors before they are rounded to fp16.
Further peers: OpenVINO and ONNX are sentence-transformers' own backends of these names; PYTHON has optimum-intel and
optimum-onnx, whose transformers are older. OpenVINO-int8, ONNX-int8 and torch-int8 are in 8 bits.
"""

import shutil
from collections.abc import Callable
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
    artifact = stages.stage(
        folder, "embeddings", encode.run, params(precision), "dataset", "model", "tokens"
    )
    return int(artifact.manifest.facts["passages"])


def read_passages(folder: Path) -> list[str]:
    """Return the texts that the peers encode, from memory into memory."""
    return [group[0] for group in stages.texts(folder).passages]


def locate_model(folder: Path) -> Path:
    """Return the folder of the model, as sentence-transformers reads it."""
    return stages.place(folder, "model") / "dual/shared"


def encode_by_peer(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of sentence-transformers with its defaults."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(locate_model(folder)))
    model.max_seq_length = 128
    if precision == "bf16":
        model = model.bfloat16()
    return model.encode(read_passages(folder), convert_to_tensor=True, show_progress_bar=False)


def encode_by_backend(
    folder: Path, converted: Path, backend: str, **options: object
) -> torch.Tensor:
    """Return the vectors of a converted model by one of sentence-transformers' other backends."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(converted), backend=backend, model_kwargs=options)
    model.max_seq_length = 128
    return model.encode(read_passages(folder), convert_to_tensor=True, show_progress_bar=False)


def convert(folder: Path, backend: str) -> Path:
    """Return the folder of the model as a backend reads it; the first call converts it, before the clock runs."""
    from sentence_transformers import SentenceTransformer

    converted = folder.parent / backend
    if not converted.is_dir():
        SentenceTransformer(str(locate_model(folder)), backend=backend).save_pretrained(
            str(converted)
        )
    return converted


def encode_by_openvino(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of OpenVINO in fp32 or bf16."""
    hint = {"fp32": "f32", "bf16": "bf16"}[precision]
    converted = convert(folder, "openvino")
    return encode_by_backend(
        folder, converted, "openvino", ov_config={"INFERENCE_PRECISION_HINT": hint}
    )


def encode_by_openvino_int8(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of OpenVINO in int8: weights and activations, calibrated on 300 of the passages."""
    converted = folder.parent / "openvino-int8"
    if not converted.is_dir():
        quantise(folder, converted)
    return encode_by_backend(folder, converted, "openvino")


def quantise(folder: Path, converted: Path) -> None:
    """Write the model in int8, as OpenVINO's own tools do it for transformers."""
    import nncf
    import openvino
    from transformers import AutoTokenizer

    source = convert(folder, "openvino")
    tokenizer = AutoTokenizer.from_pretrained(str(locate_model(folder)))
    model = openvino.Core().read_model(next(source.rglob("openvino_model.xml")))
    names = {name for port in model.inputs for name in port.get_names()}

    def read(text: str) -> dict[str, object]:
        tokens = tokenizer(text, truncation=True, max_length=128, return_tensors="np")
        return {name: tokens[name] for name in tokens if name in names}

    texts = nncf.Dataset(read_passages(folder)[:300], read)
    quantised = nncf.quantize(model, texts, model_type=nncf.ModelType.TRANSFORMER, subset_size=300)
    shutil.copytree(source, converted)
    openvino.save_model(quantised, next(converted.rglob("openvino_model.xml")))


def encode_by_onnx(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of ONNX Runtime in fp32, whose processors compute in no bf16."""
    return encode_by_backend(
        folder, convert(folder, "onnx"), "onnx", provider="CPUExecutionProvider"
    )


def encode_by_onnx_int8(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of ONNX Runtime in int8: weights, and activations by their range within each product."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    converted = folder.parent / "onnx-int8"
    if not converted.is_dir():
        shutil.copytree(convert(folder, "onnx"), converted)
        model = next(converted.rglob("model.onnx"))
        quantize_dynamic(model, model, weight_type=QuantType.QInt8, per_channel=True)
    return encode_by_backend(folder, converted, "onnx", provider="CPUExecutionProvider")


def encode_by_torch_int8(folder: Path, precision: str) -> torch.Tensor:
    """Return the vectors of PyTorch in int8: weights, and activations by their range within each product."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(locate_model(folder)), device="cpu")
    model.max_seq_length = 128
    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    return model.encode(read_passages(folder), convert_to_tensor=True, show_progress_bar=False)


PEERS: dict[str, Callable[[Path, str], torch.Tensor]] = {
    "peer": encode_by_peer,
    "OpenVINO": encode_by_openvino,
    "OpenVINO-int8": encode_by_openvino_int8,
    "ONNX-fp32": encode_by_onnx,
    "ONNX-int8": encode_by_onnx_int8,
    "torch-int8": encode_by_torch_int8,
}


def count_by(encode: Callable[[Path, str], torch.Tensor]) -> Callable[[Path, str], int]:
    """Return the work of a peer whose vectors `encode` returns."""
    return lambda folder, precision: len(encode(folder, precision))


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
    """Return the largest difference of a vector's component, ours from the peer's in fp32."""
    expected = encode_by_peer(folder, "fp32").float().cpu()
    return float((encode_by_ours(folder, precision) - expected).abs().max())


def cosine(folder: Path, side: str, precision: str) -> float:
    """Return the mean cosine of a side's vectors with the peer's in fp32."""
    encode = encode_by_ours if side == "ours" else PEERS[side]
    vectors = encode(folder, precision).float().cpu()
    expected = encode_by_peer(folder, "fp32").float().cpu()
    return float(torch.nn.functional.cosine_similarity(vectors, expected).mean())


if __name__ == "__main__":
    sides = {"ours": ours} | {name: count_by(encode) for name, encode in PEERS.items()}
    take(
        Work(
            "Encoding",
            "encode",
            "passages",
            (4000, 256),
            prepare,
            sides,
            difference,
            NOTE,
            cosine=cosine,
        )
    )
