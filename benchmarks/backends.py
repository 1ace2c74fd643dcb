"""The other backends of sentence-transformers, and 8 bits: further peers of `encoding.py` and `reranking.py`.

The Python that runs such a peer has optimum-intel and optimum-onnx. A model is converted once, before the clock starts.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

SIDES = ("OpenVINO", "OpenVINO-int8", "ONNX-fp32", "ONNX-int8", "torch-int8")

# opens a SentenceTransformer or CrossEncoder, and sets its greatest length
Load = Callable[..., Any]


def list_sides(
    ours: Callable[[Path, str], int], count_by: Callable[[str, Path, str], int]
) -> dict[str, Callable[[Path, str], int]]:
    """Return the sides of a `turns.Work`: ours and the peers; `count_by` does the work of the peer of a name."""
    sides = {"ours": ours}
    for name in ("peer", *SIDES):
        sides[name] = partial(count_by, name)
    return sides


def open_converted(
    load: Load, model: Path, folder: Path, side: str, precision: str, texts: Callable[[], list[Any]]
) -> Any:
    """Return a model that computes with the backend of a side.

    Args:
        load: (folder, further keywords of sentence-transformers) → model.
        model: the folder of the model.
        folder: the folder of converted models.
        side: OpenVINO, OpenVINO-int8, ONNX-fp32, ONNX-int8 or torch-int8.
        precision: of OpenVINO, fp32 or bf16; the other backends have a fixed precision.
        texts: returns the texts with which OpenVINO's 8 bits are calibrated, in the form that the tokenizer takes.
    """
    if side == "OpenVINO":
        hint = {"fp32": "f32", "bf16": "bf16"}[precision]
        converted = convert(load, model, folder, "openvino")
        options = {"ov_config": {"INFERENCE_PRECISION_HINT": hint}}
        return load(converted, backend="openvino", model_kwargs=options)
    if side == "OpenVINO-int8":
        source = convert(load, model, folder, "openvino")
        return load(quantise_openvino(load, source, model, texts), backend="openvino")
    if side == "torch-int8":
        return torch.ao.quantization.quantize_dynamic(
            load(model, device="cpu"), {torch.nn.Linear}, dtype=torch.qint8
        )
    converted = convert(load, model, folder, "onnx")
    if side == "ONNX-int8":
        converted = quantise_onnx(converted)
    return load(converted, backend="onnx", model_kwargs={"provider": "CPUExecutionProvider"})


def convert(load: Load, model: Path, folder: Path, backend: str) -> Path:
    """Return the folder of the model in a backend's format; the first call converts the model."""
    converted = folder / backend
    if not converted.is_dir():
        load(model, backend=backend).save_pretrained(str(converted))
    return converted


def quantise_openvino(
    load: Load, source: Path, model: Path, texts: Callable[[], list[Any]]
) -> Path:
    """Return the model's folder in int8, weights and activations, by OpenVINO's own tools, calibrated on 300 texts."""
    converted = source.with_name("openvino-int8")
    if converted.is_dir():
        return converted
    import nncf
    import openvino
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    length = load(model).max_seq_length
    network = openvino.Core().read_model(next(source.rglob("openvino_model.xml")))
    names = {name for port in network.inputs for name in port.get_names()}

    def read(text: Any) -> dict[str, object]:
        words = [text] if isinstance(text, str) else text
        tokens = tokenizer(*words, truncation=True, max_length=length, return_tensors="np")
        return {name: tokens[name] for name in tokens if name in names}

    sample = nncf.Dataset(texts()[:300], read)
    kind = nncf.ModelType.TRANSFORMER
    quantised = nncf.quantize(network, sample, model_type=kind, subset_size=300)
    shutil.copytree(source, converted)
    openvino.save_model(quantised, next(converted.rglob("openvino_model.xml")))
    return converted


def quantise_onnx(source: Path) -> Path:
    """Return the model's folder in int8: weights, and activations scaled by their range in each product."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    converted = source.with_name("onnx-int8")
    if not converted.is_dir():
        shutil.copytree(source, converted)
        network = next(converted.rglob("model.onnx"))
        quantize_dynamic(network, network, weight_type=QuantType.QInt8, per_channel=True)
    return converted
