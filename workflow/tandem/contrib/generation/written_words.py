"""Cross-encoders that score by the first word that a decoder writes, and how others compute their scores.

monoT5 (Nogueira et al. 2020) and duoT5 (Pradeep et al. 2021) score by *true* and *false*, RankT5 (Zhuang et al. 2022)
by the logit of a single word.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from tandem.contrib.generation.generators import load_generator, start_token
from tandem.errors import UserError, printable
from tandem.extras.usage import usage_of_pooling
from tandem.models.pair_prompts import PLACES, ReadingHead, reading_head

_WRITING_EXAMPLE = """\
```python
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModelForSeq2SeqLM.from_pretrained("cross")

def tokenise(text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]

def find_id(word):  # one token as a text has it, else an entry of the vocabulary
    ids = tokenise(word)
    return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else tokenizer.get_vocab()[word]

pieces = {pieces}
plain, whole = tokenise("a"), tokenizer("a")["input_ids"]
first = whole.index(plain[0])  # the special tokens around a text
# each piece is tokenised on its own, as in training
ids = [*whole[:first], *(token for piece in pieces for token in tokenise(piece)), *whole[first + len(plain):]]
start = torch.tensor([[model.config.decoder_start_token_id]])
logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=start).logits[:, 0]
{score}
```"""
_EXAMPLE_TEXTS = {
    "{query}": "a query",
    "{passage}": "a passage",
    "{first}": "a passage",
    "{second}": "another",
}


class OutputLayer(nn.Linear):
    """The layer of a decoder that computes the logits of tokens, in float32 even if the rest is in bf16.

    In bf16, logits near 10 differ by 0.06, and many passages would have the same score.
    """

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(
            plain.in_features, plain.out_features, plain.bias is not None, device="meta"
        )
        self.weight = plain.weight
        self.bias = plain.bias

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features)."""
        with torch.autocast(input.device.type, enabled=False):
            wide = torch.promote_types(input.dtype, torch.float32)
            return nn.functional.linear(input.to(wide), self.weight, self.bias)


@reading_head("decoder")
class WrittenWords(ReadingHead):
    """Scores by the logits of one word or two words as the first word that a decoder writes.

    z(w) for a single word (RankT5, encoder-decoder), or z(w₁) - z(w₂): the log-odds of the first word. P(w₁) is its
    probability among the two words only, monoT5's score; the log-odds are its logit.
    """

    ids: Tensor

    def __init__(self, model: Any, tokenizer: Any, words: Sequence[str]) -> None:
        super().__init__()
        self.register_buffer(
            "ids", torch.tensor([find_word(tokenizer, word) for word in words]), persistent=False
        )
        self.start = start_token(model) or 0
        model.set_output_embeddings(OutputLayer(model.get_output_embeddings()))

    @classmethod
    def load(cls, folder: Path, words: Sequence[str]) -> tuple[Any, Self]:
        """See `ReadingHead`; a `UserError` for a folder without an encoder with a decoder."""
        model, tokenizer = load_generator(folder)
        if not model.config.is_encoder_decoder:
            problem = f"is a decoder alone ({model.config.model_type})"
            raise UserError(
                f"{folder}: {problem}; pooling decoder needs an encoder with a decoder, such as T5"
            )
        return model, cls(model, tokenizer, words)

    def freeze_layers(self, model: Any, freeze: Callable[[nn.Linear], nn.Module]) -> None:
        """See `ReadingHead`; the layer is the one that computes the logits of tokens."""
        model.set_output_embeddings(freeze(model.get_output_embeddings()))

    def forward(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Return the scores of pairs, shape (pairs,), by an encoder with a decoder."""
        start = inputs["input_ids"].new_full((len(inputs["input_ids"]), 1), self.start)
        logits: Tensor = model(**inputs, decoder_input_ids=start, use_cache=False).logits[
            :, 0, self.ids
        ]
        return logits[:, 0] if len(self.ids) == 1 else logits[:, 0] - logits[:, 1]


def find_word(tokenizer: Any, word: str) -> int:
    """Return the id of a word that is a single token in a text; otherwise that of a vocabulary entry.

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


@usage_of_pooling("decoder")
def describe_writing(cross: Mapping[str, Any]) -> str:
    """Return how transformers computes the scores of words that a decoder writes.

    Its tokenizer reads the words of the prompt and the texts one by one, as `Around.of` does.
    """
    prompt = cross["prompt"]
    words_between = PLACES.split(prompt)
    texts = [_EXAMPLE_TEXTS[place] for place in PLACES.findall(prompt)]
    pieces = [words_between[0].strip()]
    for text, words in zip(texts, words_between[1:], strict=True):
        pieces += [text, words.strip()]
    listed = json.dumps([piece for piece in pieces if piece], ensure_ascii=False)
    logits = [f"logits[:, find_id({json.dumps(word)})]" for word in cross["words"]]
    return _WRITING_EXAMPLE.format(pieces=listed, score=f"scores = {' - '.join(logits)}")
