"""Load models with a head that predicts tokens from a folder: encoders with a decoder, and decoders only."""

from pathlib import Path
from typing import Any

from tandem.contrib.generation.generator_folders import check_generator
from tandem.errors import UserError
from tandem.models.folders import read_model_json
from tandem.models.hub import check_weights, from_folder, load_tokenizer


def load_generator(folder: Path) -> tuple[Any, Any]:
    """Return a folder's model with a head that predicts tokens, in float32 and for inference, and its tokenizer.

    Raises:
        UserError: it has no decoder, lacks weights, or has no token that ends a text.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    check_generator(folder)
    pair = bool(read_model_json(folder / "config.json").get("is_encoder_decoder"))
    model, report = from_folder(AutoModelForSeq2SeqLM if pair else AutoModelForCausalLM, folder)
    check_weights(folder, report, sorted(report["missing_keys"]))
    tokenizer = load_tokenizer(folder)
    if not end_tokens(model, tokenizer):
        raise UserError(
            f"{folder}: neither its generation_config.json nor its tokenizer names a token that ends a text"
        )
    if pair and start_token(model) is None:
        raise UserError(
            f"{folder}: config.json names no decoder_start_token_id, with which its texts begin"
        )
    return model.eval(), tokenizer


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a text, from the model's generation settings, else from the tokenizer."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = (
            tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
        )
    if ends is None:
        return []
    return [ends] if isinstance(ends, int) else list(ends)


def start_token(model: Any) -> int | None:
    """Return the token before a decoder's first one; None for a decoder without encoder."""
    start: int | None = model.config.decoder_start_token_id
    if start is None:
        start = model.generation_config.decoder_start_token_id
    return start
