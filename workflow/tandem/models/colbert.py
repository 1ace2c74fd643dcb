"""Published checkpoints of ColBERT, in the layouts of PyLate and of Stanford's code, as encoders of this project."""

from pathlib import Path

from safetensors import safe_open
from tokenizers import AddedToken
from torch import nn

from tandem.errors import UserError
from tandem.models.dense import TOKENS, Dense
from tandem.models.described import described_towers, is_stanford, markers
from tandem.models.hub import load_tokenizer
from tandem.models.weights import weight_files

LAYER = "linear.weight"  # among the weights of Stanford's checkpoints


def adopt(source: Path, folder: Path) -> None:
    """Make a copied checkpoint read its markers as tokens, and give its layer a folder of its own.

    These libraries insert a marker's id behind the first special token. Here it is text in front of every text, so that
    the tokenizer has to find it as one token, whatever it does to texts.

    Args:
        source: the checkpoint.
        folder: its copy, which is changed.
    Raises:
        UserError: a marker is no token, or the layer is missing or of another size than the metadata say.
    """
    tokenizer, tokens = load_tokenizer(source), []
    vocabulary = tokenizer.get_vocab()
    for marker in filter(None, markers(source).values()):
        token = next((text for text in (marker, marker.strip()) if text in vocabulary), None)
        if token is None:
            hint = "copy the tokenizer's files that belong to the weights"
            raise UserError(f"{source}: its marker {marker!r} is no token of its tokenizer; {hint}")
        tokens.append(AddedToken(token, normalized=False, special=True))
    tokenizer.add_tokens(tokens, special_tokens=True)
    tokenizer.save_pretrained(folder)
    if is_stanford(source):
        _projection(source).save(folder / "1_Dense")


def _projection(source: Path) -> Dense:
    """The layer of a checkpoint of Stanford's, without bias."""
    dim = described_towers(source)["representation"]["dim"]
    for path in weight_files(source):
        with safe_open(path, framework="pt") as file:
            if LAYER in file.keys():  # noqa: SIM118 - no mapping
                weight = file.get_tensor(LAYER).float()
                if len(weight) != dim:
                    raise UserError(f"{path}: {LAYER} has {len(weight)} rows, but the metadata say dim {dim}")
                linear = nn.Linear(weight.shape[1], dim, bias=False)
                linear.weight = nn.Parameter(weight)
                return Dense(linear, nn.Identity(), TOKENS)
    raise UserError(f"{source}: {LAYER} is missing, the layer of a ColBERT checkpoint")
