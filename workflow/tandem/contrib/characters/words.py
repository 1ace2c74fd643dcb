"""Stage `word_tokens`: a collection's texts as ids of words, and the characters of each word.

Ids number the words of a part of the passages, or of all queries, in the order of their first occurrence. The parts'
files are joined end to end, so that only one part's words are in memory; a word that occurs in several parts has an id
in each. The special tokens come before all words.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from tandem.config.encoders import LONGEST_WORD
from tandem.contrib.characters.options import SPECIAL_TOKENS
from tandem.extras.usage import EXAMPLE_TEXTS, usage_of_tokens
from tandem.models.ragged import Ragged, write_ragged
from tandem.models.saving import DualShape
from tandem.models.tokenisation import (
    PASSAGES,
    QUERIES,
    Side,
    Tokeniser,
    tokenise_queries,
    write_tokens,
)
from tandem.models.tokens import (
    BEGIN_OF_WORD,
    END_OF_WORD,
    WORDS,
    WORDS_DTYPE,
    Template,
    WordTemplate,
)
from tandem.stages.base import Json
from tandem.stages.training import TokensParams
from tandem.store.job import Draft, Job

_WORDS_PER_BLOCK = 1 << 16
# The character of a special token between the marks of a word's begin and end; [PAD] and [UNK] have no characters.
_SPECIAL_CHARACTERS = {"[CLS]": 257, "[SEP]": 258, "[MASK]": 262}
_EXAMPLE = """\
Words are read by their characters: neither transformers nor sentence-transformers loads these folders.

```python
from pathlib import Path
from tandem.contrib.characters.words import read_texts
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.hub import load_tokenizer

model, tokenizer = DualEncoder.load(Path("dual")).eval(), load_tokenizer(Path("{folder}"))
sides = (("query", {query}), ("passage", {passage}))
vectors = [model.encode(side, *read_texts(tokenizer, [text]), "fp32") for side, text in sides]
scores = dot_scores(*vectors, model.temperature)
```"""


class WordTokenizer:
    """Split texts into words as BERT's BasicTokenizer does, and number words in the order of their occurrence.

    Attributes:
        ids: word → its id; the first word's id follows that of the last special token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._normalizer = tokenizer.backend_tokenizer.normalizer
        self._splitter = tokenizer.backend_tokenizer.pre_tokenizer
        self.ids: dict[str, int] = {}

    def prompt(self, text: str) -> str:
        """Return a text of the configuration unchanged: no special tokens are recognised in it."""
        return text

    def special_id(self, token: str) -> int:
        """Return the id of a special token."""
        return SPECIAL_TOKENS.index(token)

    def split(self, text: str) -> list[str]:
        """Return the words of a text; each punctuation mark and each Chinese character is a word."""
        normal = self._normalizer.normalize_str(text)
        return [word for word, _ in self._splitter.pre_tokenize_str(normal)]

    def tokenise(
        self, texts: Sequence[str], length: int | None = None
    ) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of the words of texts, cut to `length`, and whether each text was cut."""
        rows = []
        cut = []
        for text in texts:
            words = self.split(text)
            selected = words if length is None else words[:length]
            rows.append([self._number(word) for word in selected])
            cut.append(len(selected) < len(words))
        return rows, cut

    def _number(self, word: str) -> int:
        return self.ids.setdefault(word, len(SPECIAL_TOKENS) + len(self.ids))


def spell(word: str) -> list[int]:
    """Return the numbers of a word's characters: its begin, 1 + each byte, as many as fit, and its end."""
    shown = word.encode("utf-8", "replace")[: LONGEST_WORD - 2]
    return [BEGIN_OF_WORD, *(1 + byte for byte in shown), END_OF_WORD]


def spell_special_tokens() -> list[list[int]]:
    """Return the numbers of the special tokens' characters, by their ids."""
    rows = []
    for token in SPECIAL_TOKENS:
        character = _SPECIAL_CHARACTERS.get(token)
        rows.append([] if character is None else [BEGIN_OF_WORD, character, END_OF_WORD])
    return rows


def spell_words(side: Side) -> Iterator[list[list[int]]]:
    """Yield the numbers of the characters of a side's words, in the order of their ids, a block at a time."""
    tokenizer = side.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    words = iter(tokenizer.ids)
    while block := list(islice(words, _WORDS_PER_BLOCK)):
        yield [spell(word) for word in block]


def read_texts(tokenizer: Any, texts: Sequence[str]) -> tuple[Ragged, WordTemplate]:
    """Return ids of the words of some texts, and the template that contains the words' characters.

    Args:
        tokenizer: the tokenizer of an encoder with source `characters`.
        texts: with their prompts in front, if they have any; no text is cut.
    """
    words = WordTokenizer(tokenizer)
    rows, _ = words.tokenise(texts)
    spelled = [*spell_special_tokens(), *map(spell, words.ids)]
    template = WordTemplate(**vars(Template.of(tokenizer)), words=to_ragged(spelled, WORDS_DTYPE))
    return to_ragged(rows, "int64"), template


@usage_of_tokens("word_tokens")
def describe_usage(shape: DualShape) -> str:
    """Return how Tandem loads a dual encoder that reads words by their characters."""
    texts = {
        side: json.dumps(shape.before.get(side, "") + text, ensure_ascii=False)
        for side, text in EXAMPLE_TEXTS
    }
    folder = "dual/shared" if shape.shared else "dual/passage"
    return _EXAMPLE.format(folder=folder, **texts)


def to_ragged(rows: Iterable[list[int]], dtype: str) -> Ragged:
    """Return rows of numbers as a `Ragged`."""
    return Ragged.of([np.array(row, dtype) for row in rows])


def move_ids(texts: Ragged, before: int) -> Ragged:
    """Return ids of words that follow `before` other words; special tokens keep their ids."""
    ids = np.asarray(texts.ids)
    moved = np.where(ids < len(SPECIAL_TOKENS), ids, ids + ids.dtype.type(before))
    return replace(texts, ids=moved)


class WordTokeniser(Tokeniser):
    """Write ids of words, and the words' characters next to them."""

    def __init__(self, job: Job[TokensParams]) -> None:
        super().__init__(job)
        self.dtype = "uint32"

    def make_side(self, name: str) -> Side:
        """Return a side whose words are numbered anew."""
        return Side(name, self.job.params, WordTokenizer(self.tokenizer))

    def write_more(self, folder: Path, side: Side) -> Json:
        """Write the characters of the words of a part; return how many words there are."""
        words, _ = write_ragged(folder, WORDS, spell_words(side), WORDS_DTYPE)
        return {"words": words}

    def write_texts(self, draft: Draft, parts: dict[int, Json], query: Side) -> tuple[int, Json]:
        """Write the parts end to end, and then all queries; the ids of each follow those of the words before."""
        data = self.job.inputs["dataset"]
        titled = self.template.titled
        before = sum(facts["words"] for facts in parts.values())
        queries = (
            move_ids(to_ragged(rows, self.dtype), before) for rows in tokenise_queries(data, query)
        )
        _, tokens = write_ragged(
            draft.folder, PASSAGES, self._join_passages(parts), self.dtype, titled
        )
        write_ragged(draft.folder, QUERIES, queries, self.dtype)
        of_parts = (Ragged.open(self.parts.path(number), WORDS, WORDS_DTYPE) for number in parts)
        words, _ = write_ragged(
            draft.folder,
            WORDS,
            chain([spell_special_tokens()], of_parts, spell_words(query)),
            WORDS_DTYPE,
        )
        return tokens, {"words": words}

    def _join_passages(self, parts: dict[int, Json]) -> Iterator[Ragged]:
        before = 0
        for number, facts in parts.items():
            yield move_ids(Ragged.open(self.parts.path(number), PASSAGES, self.dtype), before)
            before += facts["words"]

    def find_gaps(self) -> list[str]:
        """Return nothing: every script has characters."""
        return []


def run_shard(job: Job[TokensParams]) -> Json:
    """Split every n-th part of the passages into words, starting at this shard's number."""
    return {"parts": list(WordTokeniser(job).write_parts())}


def run(job: Job[TokensParams]) -> None:
    """Split all queries and the parts that no shard has split into words, and join everything."""
    write_tokens(WordTokeniser(job))
