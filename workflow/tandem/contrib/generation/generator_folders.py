"""What a folder must hold to be a generator, or the start of one, read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.models.folders import check_tokenizer, read_model_json
from tandem.models.heads import read_architecture

# suffixes of the classes of decoders that predict a next token
WRITING = ("ForCausalLM", "LMHeadModel")


def check_generator(folder: Path) -> None:
    """Refuse a folder without a decoder that predicts tokens, by its `config.json`, or without a tokenizer."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{path} is missing; a generator is a folder that transformers saved")
    config = read_model_json(path)
    name = read_architecture(config)
    if not config.get("is_encoder_decoder") and not name.endswith(WRITING):
        allowed = f"an encoder with a decoder (T5, BART), or a decoder (…{' or …'.join(WRITING)})"
        raise UserError(
            f"{path}: architectures is {name}, which has no decoder that writes; allowed: {allowed}"
        )
    check_tokenizer(folder)


# families whose layers can also be a decoder's, with attention to an encoder inserted
DECODING_FAMILIES = ("bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta")


def check_decoding(config: Mapping[str, Any], where: str) -> None:
    """Refuse an encoder whose layers cannot be a decoder's, by its `config.json`; `where` names its owner."""
    family = config.get("model_type")
    if family not in DECODING_FAMILIES:
        raise UserError(
            f"{where}: model_type is {family}, whose layers transformers cannot have decode; allowed: "
            f"{', '.join(DECODING_FAMILIES)}"
        )
    if not config.get("num_hidden_layers"):
        raise UserError(f"{where}: has no layers, which would decode; choose another encoder")
