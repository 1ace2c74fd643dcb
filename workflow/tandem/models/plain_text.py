"""Tokenise texts without special tokens, whatever a text spells: "[SEP]" in a passage is five characters.

transformers' `split_special_tokens` has the same aim, but does not suffice here for two reasons. T5's and XLM-R's
models have "</s>" among their own pieces, and still find it in a text. And a prompt comes from the configuration:
special tokens that it spells are intended, unlike those in the text behind it.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from tandem.stages.base import Json


class PlainTextTokenizer:
    """Hold a copy of a fast tokenizer that knows special tokens only by secret names, which no text can spell.

    A text that spells no special token has the same ids as by the tokenizer. Nothing is put around a text.
    """

    def __init__(self, tokenizer: Any) -> None:
        config = json.loads(tokenizer.backend_tokenizer.to_str())
        special = [token["content"] for token in config["added_tokens"] if token["special"]]
        self._names = {content: secrets.token_hex(16) for content in special}
        # The longest first: where one special token begins with another, the tokenizer takes the longer.
        longest_first = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)))
        self._tokenizer = Tokenizer.from_str(json.dumps(_rename(config, self._names)))
        self._cut_from = tokenizer.truncation_side

    def prompt(self, text: str) -> str:
        """Return a text of the configuration in the form that is put in front of others.

        The special tokens that it spells become special tokens.
        """
        if not self._names:
            return text
        return self._special.sub(lambda match: self._names[match[0]], text)

    def special_id(self, token: str) -> int:
        """Return the id of a special token; raise a `KeyError` for any other."""
        return self._tokenizer.get_vocab()[self._names[token]]

    def tokenise(
        self, texts: Sequence[str], length: int | None = None
    ) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of texts, some with a `prompt` in front, cut to `length`; and which of them were cut."""
        if length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(length, direction=self._cut_from)
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings], [
            bool(encoding.overflowing) for encoding in encodings
        ]


def _rename(config: Json, names: Mapping[str, str]) -> Json:
    """Return a `tokenizer.json` that puts nothing around texts, with other names of special tokens and the same ids."""
    added = [
        token | {"content": names.get(token["content"], token["content"])}
        for token in config["added_tokens"]
    ]
    around: Json = {"post_processor": None, "truncation": None, "padding": None}
    return (
        config | around | {"added_tokens": added, "model": _rename_pieces(config["model"], names)}
    )


def _rename_pieces(model: Json, names: Mapping[str, str]) -> Json:
    """Return the part `model` of a `tokenizer.json` with other names for some of its pieces."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        renamed: Json = {
            "vocab": {names.get(piece, piece): number for piece, number in vocabulary.items()}
        }
    else:  # of a unigram model: pieces with their scores, by their ids
        renamed = {"vocab": [[names.get(piece, piece), score] for piece, score in vocabulary]}
    if "merges" in model:
        inner = model.get("continuing_subword_prefix") or ""
        # Merges of a special token, or of a text's pieces into one, are removed.
        merged = (
            [left, right, left + right.removeprefix(inner)] for left, right in model["merges"]
        )
        renamed["merges"] = [
            [left, right]
            for left, right, whole in merged
            if names.keys().isdisjoint((left, right, whole))
        ]
    if model.get("unk_token"):
        renamed["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    return model | renamed
