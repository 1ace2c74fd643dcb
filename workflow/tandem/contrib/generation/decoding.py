"""Generate texts by a generator's model: greedily, by beam search, or drawn, each by its own random numbers.

transformers' `generate` computes the tokens, with its cache of keys and values. A batch has texts of about the same
length. The encoder's states of a passage are computed once for all of its texts.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tandem.contrib.generation.generators import end_tokens
from tandem.contrib.generation.options import Decoding
from tandem.contrib.generation.seq2seq import log_likelihoods, pad_texts
from tandem.models.device import device, move_to_device, place_all, resolve_precision
from tandem.models.ragged import Ids, Ragged, split_by_tokens, sum_lengths

BEGINNINGS = ("decoder_start_token_id", "bos_token_id", "forced_bos_token_id")
# is called with the numbers of finished sources and of written tokens
OnBatch = Callable[[int, int], None]


class Written(NamedTuple):
    """The texts that were generated from one source.

    Attributes:
        texts: without special tokens; a beam search's by likelihood, best first, others by number.
        log_likelihoods: log P(text | source) by the model itself, summed over its tokens, the last one included.
        tokens: the number of these tokens, per text.
    """

    texts: list[str]
    log_likelihoods: list[float]
    tokens: list[int]


def uniforms(seed: int, name: str, number: int, count: int) -> Ids:
    """Return the random numbers in [0, 1) by which a text's tokens are drawn, float64, shape (count,).

    They depend only on the seed, the passage's id and the text's number.
    """
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.default_rng([seed, digest, number]).random(count)


class Choice:
    """A logits processor of `generate`: chooses each row's next token and makes it the likeliest.

    Tokens are drawn by the inverse of the cumulative distribution over the tokens in order of probability. Only
    `numbers` decide, not the other rows of the batch. Without `numbers` the likeliest token is taken.

    Attributes:
        log_likelihood: log P of the tokens so far at temperature 1, float64, shape (rows,).
    """

    def __init__(
        self, options: Decoding, rows: int, ends: Sequence[int], numbers: Tensor | None
    ) -> None:
        self.options, self.numbers, self.step = options, numbers, 0
        self.ends = move_to_device(torch.tensor(list(ends)))
        self.log_likelihood = torch.zeros(rows, dtype=torch.float64, device=device())
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device())

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores, shape (rows, vocabulary), by which `generate` takes the chosen token of each row."""
        logits = scores.float()
        chosen = (
            logits.argmax(-1)
            if self.numbers is None
            else self._draw(logits, self.numbers[:, self.step])
        )
        own = logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(-1)
        self.log_likelihood += own.double().masked_fill(self.ended, 0.0)
        self.ended |= torch.isin(chosen, self.ends)
        self.step += 1
        if self.numbers is None:  # `generate` itself takes the likeliest
            return scores
        return scores.scatter_(1, chosen[:, None], float("inf"))

    def _draw(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """Return a token for each row, shape (rows,)."""
        options = self.options
        most = min(options.top_k, logits.shape[1]) if options.method == "top_k" else logits.shape[1]
        values, tokens = (logits / options.temperature).topk(most, dim=-1)
        shares = values.softmax(-1).double()
        # the smallest number of likeliest tokens whose probabilities sum to `top_p`, at least one
        if options.method == "nucleus":
            before = shares.cumsum(-1) - shares
            shares = shares * (before < options.top_p)
        reached = shares.cumsum(-1)
        last = (shares > 0).sum(-1) - 1
        places = (reached <= numbers[:, None] * reached[:, -1:]).sum(-1)
        return tokens.gather(1, torch.minimum(places, last)[:, None])[:, 0]


class Writer:
    """A generator's model on the device, and how it writes.

    Args:
        model, tokenizer: as `load_generator` returns them.
        padding: the id that pads rows.
    """

    def __init__(
        self, model: Any, tokenizer: Any, options: Decoding, seed: int, padding: int
    ) -> None:
        from transformers.generation import GenerationConfig

        self.tokenizer, self.options, self.seed, self.padding = tokenizer, options, seed, padding
        dtype = torch.bfloat16 if resolve_precision(options.precision) == "bf16" else torch.float32
        self.model = model.to(dtype).to(device()).eval()
        self.pair = bool(model.config.is_encoder_decoder)
        self.ends = [*end_tokens(model, tokenizer), *self._ending()]
        if decoders := getattr(model.config, "num_decoder_layers", None):
            # transformers gives the cache as many layers as a T5's encoder has
            model.config.num_layers = decoders
        own = model.generation_config
        # No penalties, bans and other settings of a folder, except those of how its texts must begin.
        begins = {name: getattr(own, name) for name in BEGINNINGS}
        beams: dict[str, int] = {}
        if options.method == "beam":
            beams = {"num_beams": options.beams, "num_return_sequences": options.number}
        self.generation = GenerationConfig(
            **begins,
            **beams,
            eos_token_id=self.ends,
            pad_token_id=padding,
            max_new_tokens=options.tokens,
            do_sample=False,
        )
        model.generation_config = self.generation

    @property
    def copies(self) -> int:
        """Return how many rows of a batch belong to one source during generation."""
        return self.options.beams if self.options.method == "beam" else self.options.number

    def write(
        self, sources: Ragged, names: Sequence[str], done: OnBatch | None = None
    ) -> list[Written]:
        """Return the texts generated from sources, in their order.

        Args:
            sources: token ids, special ones included.
            names: ids of the passages or queries; with the seed they decide what is drawn.
        """
        lengths = np.diff(sources.offsets)
        written: list[Written] = [Written([], [], [])] * len(names)
        for rows in split_by_tokens(lengths, max(1, self.options.batch_tokens // self.copies)):
            results = self._write_batch(sources.take(rows), [names[row] for row in rows])
            for row, result in zip(rows.tolist(), results, strict=True):
                written[row] = result
            if done:
                done(len(rows), sum(sum(result.tokens) for result in results))
        return written

    @torch.inference_mode()
    def _write_batch(self, sources: Ragged, names: list[str]) -> list[Written]:
        number, is_beam = self.options.number, self.options.method == "beam"
        inputs = place_all(pad_texts(sources, self.padding, left=not self.pair))
        if not is_beam:
            inputs = self._copied(inputs, number)
        read = 1 if self.pair else inputs["input_ids"].shape[1]
        if is_beam:
            ids = self.model.generate(**inputs, generation_config=self.generation)[:, read:]
        else:
            choice = Choice(self.options, len(names) * number, self.ends, self._numbers(names))
            options = {"generation_config": self.generation, "logits_processor": [choice]}
            ids = self.model.generate(**inputs, **options)[:, read:]
        targets = self._without_padding(ids.cpu().numpy())
        if is_beam:
            # transformers' own scores are divided by a power of the length, without stating the length.
            rows = np.repeat(np.arange(len(names)), number)
            likelihoods = log_likelihoods(self.model, sources.take(rows), targets, self.padding)
        else:
            likelihoods = choice.log_likelihood.cpu().numpy()
        texts, lengths = self._texts(targets), np.diff(targets.offsets)
        spans = [slice(first, first + number) for first in range(0, len(texts), number)]
        return [
            Written(texts[span], likelihoods[span].tolist(), lengths[span].tolist())
            for span in spans
        ]

    def _copied(self, inputs: dict[str, Tensor], number: int) -> dict[str, Tensor]:
        """Return inputs with every row repeated `number` times; an encoder reads each row once."""
        if self.pair:
            inputs["encoder_outputs"] = encoded = self.model.get_encoder()(**inputs)
            encoded.last_hidden_state = encoded.last_hidden_state.repeat_interleave(number, 0)
            # `generate` counts its rows by these ids.
            inputs["input_ids"] = inputs["input_ids"].repeat_interleave(number, 0)
            inputs["attention_mask"] = inputs["attention_mask"].repeat_interleave(number, 0)
            return inputs
        return {name: tensor.repeat_interleave(number, 0) for name, tensor in inputs.items()}

    def _numbers(self, names: list[str]) -> Tensor | None:
        """Return the random numbers of every text, shape (texts, tokens); None if nothing is drawn."""
        if self.options.method == "greedy":
            return None
        count, number = self.options.tokens, self.options.number
        rows = [uniforms(self.seed, name, each, count) for name in names for each in range(number)]
        return move_to_device(torch.from_numpy(np.stack(rows)))

    def _without_padding(self, ids: Ids) -> Ragged:
        """Return each row up to its first end token, inclusive."""
        is_end = np.isin(ids, self.ends)
        lengths = np.where(is_end.any(1), is_end.argmax(1) + 1, ids.shape[1])
        stands = np.arange(ids.shape[1]) < lengths[:, None]
        return Ragged(ids[stands], sum_lengths(lengths))

    def _texts(self, targets: Ragged) -> list[str]:
        rows = [targets[row].tolist() for row in range(len(targets))]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        until = self.options.until
        cut = [text.partition(until)[0] if until and text.strip() else text for text in texts]
        return [" ".join(text.split()) for text in cut]

    def _ending(self) -> list[int]:
        """Return the tokens that contain `until`, which end a text like the end token."""
        if not self.options.until:
            return []
        pieces = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
        return [token for token, piece in enumerate(pieces) if self.options.until in piece]
