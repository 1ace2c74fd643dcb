"""The words that a cross-encoder reads around a query and one or two passages, and heads that run its whole model.

monoT5 (Nogueira et al. 2020), duoT5 (Pradeep et al. 2021) and RankT5 (Zhuang et al. 2022) read a prompt.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Template
from tandem.registry import Registry

PLACES = re.compile(r"\{(?:query|passage|first|second)\}")  # of texts in a prompt


@dataclass(frozen=True)
class PairOptions:
    """What a cross-encoder reads and writes: the fields of `cross.json` in addition to the pooling.

    Attributes:
        prompt: words with a place for each text; empty: only the tokenizer's special tokens are around the texts.
        words: for the pooling `decoder`: the word whose logit is the score, or two words whose log-odds are the score.
        passages: 1, or 2 that are compared: the score says how much more relevant the first one is than the second.
    """

    prompt: str = ""
    words: tuple[str, ...] = ()
    passages: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))  # a list out of JSON

    def as_json(self) -> dict[str, object]:
        """Return the options in a form for JSON."""
        return asdict(self) | {"words": list(self.words)}

    def differences(self) -> dict[str, object]:
        """Return the options that differ from those of a plain pair, in a form for JSON."""
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
        """Return the ids of a prompt's words, with the tokenizer's special tokens for a single text around them.

        Special tokens that the prompt spells count as such. Words and texts are tokenised separately. This gives the
        ids of the whole if there are blanks between them and tokens begin with their blank, as T5's do.
        """
        plain = PlainTextTokenizer(tokenizer)
        start, end = Template.of(tokenizer).single
        ids, _ = plain.tokenise([plain.prompt(words.strip()) for words in PLACES.split(prompt)])
        query, *passages, after = (tuple(row) for row in ids)
        return cls((*start, *query), tuple(passages), (*after, *end))


def adapt_template(template: Template, around: Around | None, has_segments: bool) -> Template:
    """Return a template for pairs as a model reads them.

    Args:
        around: ids of the model's prompt; None: the special tokens stay.
        has_segments: whether the model distinguishes texts by segments.
    """
    types = template.types if has_segments and around is None else None
    if around is None:
        return replace(template, types=types)
    return replace(template, pair=(around.query, around.passages[0], around.after), types=types)


class ReadingHead(nn.Module, ABC):
    """Score pairs by a model as a whole, instead of by a pooled vector; packages add heads under names of poolings."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, words: Sequence[str]) -> tuple[Any, Self]:
        """Return a folder's model and the head, which scores by these words; no weight is new."""

    @abstractmethod
    def forward(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Return the scores of pairs, shape (pairs,)."""

    @abstractmethod
    def freeze_layers(self, model: Any, freeze: Callable[[nn.Linear], nn.Module]) -> None:
        """Replace each layer that gives scores by what `freeze` returns for it."""


# Maps a pooling to the class of the heads that read so.
reading_head: Registry[type[ReadingHead]] = Registry(
    "head of pairs", "reading_head", "models", decides=False
)
