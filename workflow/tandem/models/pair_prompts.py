"""What a cross-encoder reads around a query and a passage, or two passages, in words; and the words that it writes.

monoT5 (Nogueira et al. 2020), duoT5 (Pradeep et al. 2021) and RankT5 (Zhuang et al. 2022) read a prompt. The first two
score by *true* and *false* as the first word that the decoder writes, RankT5 by the logit of a single one.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.errors import UserError, printable
from tandem.models.generators import start_token
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged, sum_lengths
from tandem.models.tokens import Inputs, Template

_PLACES = re.compile(r"\{(?:query|passage|first|second)\}")  # of texts in a prompt


@dataclass(frozen=True)
class PairOptions:
    """What a cross-encoder reads and writes, as `cross.json` has it beside the pooling.

    Attributes:
        prompt: words with a place for each text; empty: the tokenizer's special tokens stand around the texts.
        words: of pooling `decoder`: the word whose logit is the score, or two whose log-odds it is.
        passages: 1, or 2 that are compared: the score says how much more relevant the first one is than the second.
    """

    prompt: str = ""
    words: tuple[str, ...] = ()
    passages: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))  # a list out of JSON

    def as_json(self) -> dict[str, object]:
        """Return the options as JSON has them."""
        return asdict(self) | {"words": list(self.words)}

    def differences(self) -> dict[str, object]:
        """Return what differs from a plain pair, as JSON."""
        usual = PLAIN_PAIR.as_json()
        return {name: value for name, value in self.as_json().items() if value != usual[name]}


PLAIN_PAIR = PairOptions()


@dataclass(frozen=True)
class Around:
    """Token ids around the texts of a pair: before the query, before each passage, and behind the last one."""

    query: tuple[int, ...]
    passages: tuple[tuple[int, ...], ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, prompt: str) -> "Around":
        """Return the ids of a prompt's words, around which stand the tokenizer's special tokens of a single text.

        Special tokens that the prompt spells count as such. Words and texts are tokenised each on their own, which
        gives the ids of the whole where blanks stand between them and tokens begin with their blank, as T5's do.
        """
        plain = PlainTextTokenizer(tokenizer)
        start, end = Template.of(tokenizer).single
        ids, _ = plain.tokenise([plain.prompt(words.strip()) for words in _PLACES.split(prompt)])
        query, *passages, after = (tuple(row) for row in ids)
        return cls((*start, *query), tuple(passages), (*after, *end))


def join_passages(first: Ragged, second: Ragged, between: Sequence[int]) -> Ragged:
    """Return the two passages of each row as one text, with ids between them."""
    separators = Ragged.of([np.array(between, np.int64)] * len(first))
    joined = Inputs.join([(first, 0), (separators, 0), (second, 0)], False, 0)
    return Ragged(joined.ids, sum_lengths(joined.lengths))


def adapt_template(template: Template, around: Around | None, has_segments: bool) -> Template:
    """Return a template whose pairs are as a model reads them.

    Args:
        around: of its prompt; None: special tokens stay.
        has_segments: whether it tells texts apart by segments.
    """
    types = template.types if has_segments and around is None else None
    if around is None:
        return replace(template, types=types)
    return replace(template, pair=(around.query, around.passages[0], around.after), types=types)


class OutputLayer(nn.Linear):
    """The layer of a decoder that gives the logits of tokens, computed in float32 also where the rest is in bf16.

    In bf16 logits near 10 differ by 0.06, and many passages would have one score.
    """

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(
            plain.in_features, plain.out_features, plain.bias is not None, device="meta"
        )
        self.weight = plain.weight
        self.bias = plain.bias

    def forward(self, input: Tensor) -> Tensor:
        """Shape (…, in_features) → (…, out_features)."""
        with torch.autocast(input.device.type, enabled=False):
            wide = torch.promote_types(input.dtype, torch.float32)
            return nn.functional.linear(input.to(wide), self.weight, self.bias)


class WrittenWords(nn.Module):
    """Score by the logits of one word or two as the first that a decoder writes.

    z(w) of a single word (RankT5, encoder-decoder), or z(w₁) - z(w₂): the log-odds of the first word, P(w₁) the
    probability among the two alone (monoT5's score, of which it is the logit).
    """

    ids: Tensor

    def __init__(self, model: Any, tokenizer: Any, words: Sequence[str]) -> None:
        super().__init__()
        self.register_buffer(
            "ids", torch.tensor([find_word(tokenizer, word) for word in words]), persistent=False
        )
        self.start = start_token(model) or 0
        model.set_output_embeddings(OutputLayer(model.get_output_embeddings()))

    def forward(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Return the scores of pairs, shape (pairs,), by an encoder with a decoder."""
        start = inputs["input_ids"].new_full((len(inputs["input_ids"]), 1), self.start)
        logits: Tensor = model(**inputs, decoder_input_ids=start, use_cache=False).logits[
            :, 0, self.ids
        ]
        return logits[:, 0] if len(self.ids) == 1 else logits[:, 0] - logits[:, 1]


def find_word(tokenizer: Any, word: str) -> int:
    """Return the id of a word that is one token, as a text has it; else of an entry of the vocabulary.

    Raises:
        UserError: it is neither.
    """
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        return int(ids[0])
    vocabulary = tokenizer.get_vocab()
    if word in vocabulary:
        return int(vocabulary[word])
    problem = (
        f"{printable(word)} is {len(ids)} tokens of its tokenizer"
        if len(ids) > 1
        else f"it has no {word!r}"
    )
    raise UserError(f"{tokenizer.name_or_path}: words: {problem}; name a word that is a token")
