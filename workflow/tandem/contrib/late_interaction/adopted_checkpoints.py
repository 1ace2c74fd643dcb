"""Convert published checkpoints of late interaction to the form that models load."""

from pathlib import Path

from safetensors import safe_open
from torch import nn

from tandem.contrib.late_interaction.checkpoint_files import is_stanford, read_markers
from tandem.errors import UserError
from tandem.models.described import describe_towers
from tandem.models.folders import list_weight_files
from tandem.models.hub import add_markers, load_tokenizer
from tandem.models.saving import TOKEN_VECTORS, Dense

_PROJECTION_WEIGHT = "linear.weight"  # among the weights of Stanford's checkpoints


def adopt_colbert(source: Path, folder: Path) -> bool:
    """Convert `folder`, a copy of a ColBERT checkpoint: its markers become tokens, its layer gets a folder of its own.

    Any other folder is left unchanged, and False is returned.

    PyLate and Stanford's code insert a marker's id behind the first special token. Here the marker is put in front of
    every text as characters, which the tokenizer must read as one token, whatever else it does to texts.

    Raises:
        UserError: a marker is not a token, the layer is missing, or its size is not the one in the metadata.
    """
    markers = read_markers(source)
    if not markers:
        return False
    tokenizer = load_tokenizer(source)
    tokens = dict[str, str]()
    vocabulary = tokenizer.get_vocab()
    for side, marker in markers.items():
        if not marker:
            continue
        token = next((text for text in (marker, marker.strip()) if text in vocabulary), None)
        if token is None:
            hint = "copy the tokenizer's files that belong to the weights"
            raise UserError(
                f"{source}: its marker {marker!r} is not a token of its tokenizer; {hint}"
            )
        tokens[side] = token
    add_markers(tokenizer, tokens)
    tokenizer.save_pretrained(folder)
    if is_stanford(source):
        _read_projection(source).save(folder / "1_Dense")
    return True


def _read_projection(source: Path) -> Dense:
    """Return the layer of a checkpoint of Stanford's code, without bias."""
    dim = describe_towers(source)["representation"]["dim"]
    for path in list_weight_files(source):
        with safe_open(path, framework="pt") as file:
            if _PROJECTION_WEIGHT in file.keys():  # noqa: SIM118 - no mapping
                weight = file.get_tensor(_PROJECTION_WEIGHT).float()
                if len(weight) != dim:
                    raise UserError(
                        f"{path}: {_PROJECTION_WEIGHT} has {len(weight)} rows, but the metadata say dim {dim}"
                    )
                linear = nn.Linear(weight.shape[1], dim, bias=False)
                linear.weight = nn.Parameter(weight)
                return Dense(linear, nn.Identity(), TOKEN_VECTORS)
    raise UserError(f"{source}: {_PROJECTION_WEIGHT} is missing, the layer of a ColBERT checkpoint")
