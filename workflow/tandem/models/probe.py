"""Whether an encoder, its tokenizer and a pooling fit together, tried on a few texts when it is loaded."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from tandem.config.base import Pooling
from tandem.errors import UserError
from tandem.models.encoding import pool
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template

PARTS = (3, 4, 5, 6)  # the texts' last words stand at a third, a quarter, … of the vocabulary
CLOSE = 1e-5  # vectors as near as this are one


def check_special_tokens(tokenizer: Any, folder: Path) -> None:
    """Refuse a tokenizer that has [CLS] and [SEP] and puts neither around a text: its model has never read such."""
    if tokenizer.cls_token and tokenizer.sep_token and not any(Template.of(tokenizer).single):
        problem = f"has {tokenizer.cls_token} and {tokenizer.sep_token}, but puts neither around a text"
        raise UserError(f"{folder}: its tokenizer {problem}; mend post_processor in tokenizer.json")


def check_pairs(folder: Path) -> None:
    """Refuse a cross-encoder's tokenizer that puts nothing between two texts: query and passage would run together."""
    if not Template.of(load_tokenizer(folder)).pair[1]:
        problem = "puts no token between two texts, so a cross-encoder cannot tell query from passage"
        raise UserError(f"{folder}: its tokenizer {problem}; choose another, or mend post_processor in tokenizer.json")


def check_pooling(model: Any, pooling: str, folder: Path, name: Path | None = None) -> None:
    """Refuse a pooling by which different texts get one vector, or whose token is none of the tokenizer's.

    `cls` of a causal model sees nothing of the text, nor does any special token of an encoder without layers.

    Args:
        model: the encoder of `folder`, on any device.
        pooling: as of `pool`; others, which read pairs, are not looked at.
        name: what messages call the folder; None: by its path.
    """
    if pooling not in get_args(Pooling):
        return
    tokenizer, kind, where = load_tokenizer(folder), model.config.model_type, name or folder
    template = Template.of(tokenizer)
    if pooling == "cls" and not template.single[0]:
        raise UserError(f"{where}: pooling is cls, but its tokenizer puts no token before a text; {_others(pooling)}")
    special = set(tokenizer.all_special_ids)
    words = [at for at in range(len(tokenizer)) if at not in special]
    middle = words[len(words) // 2]
    texts = Ragged.of([np.array([middle, words[len(words) // part]], np.int64) for part in PARTS])
    inputs = {key: value.to(model.device) for key, value in template.single_inputs(texts).padded().items()}
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        vectors = pool(model.eval()(**inputs).last_hidden_state, inputs["attention_mask"], pooling)
    if torch.allclose(vectors, vectors[:1].expand_as(vectors), rtol=CLOSE, atol=CLOSE):
        token = "the first token" if pooling == "cls" else "what it pools"
        raise UserError(
            f"{where}: pooling is {pooling}, but {token} of {kind} sees nothing of the text; {_others(pooling)}"
        )


def _others(pooling: str) -> str:
    names = ", ".join(name for name in get_args(Pooling) if name != pooling)
    return f"say pooling: whatever the model was trained with ({names}), in its entry of encoders"
