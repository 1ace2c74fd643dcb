"""Loading Hugging Face folders: safetensors only, no remote code, and quiet."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tandem.errors import UserError


def quiet() -> None:
    """Silence the libraries' progress bars and load reports: our own lines say what matters."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not a Hugging Face model with safetensors weights."""
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            found = ", ".join(sorted(p.name for p in folder.glob("*"))[:8]) if folder.is_dir() else "no such folder"
            raise UserError(f"{folder}: {name} is missing (found: {found}); only safetensors weights are loaded")


def load_tokenizer(folder: Path) -> Any:
    """The folder's fast tokenizer."""
    from transformers import AutoTokenizer

    quiet()
    return AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)


def tokenizer_digest(text: str) -> str:
    """sha256 of what a fast tokenizer does, from its `tokenizer.json`; the last call's truncation does not count."""
    told = {name: part for name, part in json.loads(text).items() if name not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def check_length(model: Any, tokens: int, what: str) -> None:
    """Refuse inputs of more tokens, special ones included, than the model has positions for."""
    config = model.config
    limit = getattr(config, "max_position_embeddings", None)
    if limit and "roberta" in config.model_type:  # its positions start after the padding's number
        limit -= config.pad_token_id + 1
    if limit and tokens > limit:
        raise UserError(f"{what} allows inputs of {tokens} tokens; the model ({config.model_type}) takes {limit}")


def load_encoder(folder: Path) -> Any:
    """The folder's encoder without a task head, in float32."""
    import torch
    from transformers import AutoModel

    quiet()
    check_folder(folder)
    options = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    try:
        return AutoModel.from_pretrained(folder, add_pooling_layer=False, **options)
    except TypeError:  # families without a pooling layer do not take the option
        return AutoModel.from_pretrained(folder, **options)
