"""A generator's input for a text, and the targets that it learns, as token ids."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem.contrib.generation.options import PASSAGE, QUERY
from tandem.errors import UserError
from tandem.models.folders import read_positions
from tandem.models.hub import ENCODER_DECODER
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template


def split_prompt(prompt: str) -> tuple[str, str]:
    """Return the words of a prompt before and after the text.

    >>> split_prompt("Passage: {passage} Question:")
    ('Passage: ', ' Question:')
    """
    before, _, after = prompt.partition(PASSAGE if PASSAGE in prompt else QUERY)
    return before, after


class Reader:
    """Reads texts in a prompt as token ids, special tokens included, at most `length` of them.

    A text never yields special tokens, even if it spells one; the prompt may: see `PlainTextTokenizer`. If a text is
    too long, its end is cut, but not the prompt's words after it, which are tokenised separately.

    Attributes:
        texts: the number of texts read.
        cut: the number of these that were too long.
    """

    def __init__(self, tokenizer: Any, prompt: str, length: int, where: str) -> None:
        self.plain, template = PlainTextTokenizer(tokenizer), Template.of(tokenizer)
        self.texts = self.cut = 0
        before, after = (self.plain.prompt(words) for words in split_prompt(prompt))
        (first, behind), _ = self.plain.tokenise([before, after])
        self.before, self.length = before, length
        self.start = list(template.single[0])
        self.end = [*behind, *template.single[1]]
        around = len(self.start) + len(first) + len(self.end)
        if around >= length:
            raise UserError(
                f"{where}: length is {length}, but the prompt alone has {around} tokens; raise it"
            )

    def read(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of texts."""
        room = self.length - len(self.start) - len(self.end)
        rows, cut = self.plain.tokenise([self.before + text for text in texts], room)
        self.texts += len(cut)
        self.cut += sum(cut)
        return Ragged.of([np.array([*self.start, *row, *self.end], np.int32) for row in rows])


def target_ids(
    tokenizer: Any, texts: Sequence[str], length: int, start: int | None, end: int
) -> Ragged:
    """Return the ids that a generator is to write: texts with the token that ends them, at most `length`.

    Args:
        start: the token before a decoder's first one, which is not part of the target; None: a decoder without encoder,
            which continues after its input.
        end: the token that ends a text.
    """
    before = list(Template.of(tokenizer).single[0]) if start is not None else []
    if before[:1] == [start]:
        before = before[1:]
    rows, _ = PlainTextTokenizer(tokenizer).tokenise(texts, max(1, length - len(before) - 1))
    return Ragged.of([np.array([*before, *row, end], np.int32) for row in rows])


def check_positions(model: Any, length: int, tokens: int, where: str) -> None:
    """Refuse texts that are longer than a model has positions for.

    Args:
        length: number of tokens that it reads.
        tokens: number of tokens that it writes; a decoder without encoder writes them after its input.
    """
    config = model.config.to_dict()
    if config["model_type"] == ENCODER_DECODER:
        sides = [
            ("length", length, config["encoder"]),
            ("the longest text", tokens, config["decoder"]),
        ]
    elif model.config.is_encoder_decoder:
        sides = [("length", max(length, tokens), config)]
    else:
        sides = [("length with the tokens of a text", length + tokens, config)]
    for what, needed, own in sides:
        limit = read_positions(own)
        if limit is not None and needed > limit:
            raise UserError(
                f"{where}: {what} is {needed}, but the generator ({own['model_type']}) takes {limit}"
            )
