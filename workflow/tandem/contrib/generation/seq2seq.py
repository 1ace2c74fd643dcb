"""Objective `seq2seq`: a generator learns to write the target of its input, token after token."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.contrib.generation.generators import start_token
from tandem.contrib.generation.options import Seq2SeqTrain
from tandem.models.device import move_to_device, place_all, precision
from tandem.models.ragged import Ids, Ragged, make_micro_batches
from tandem.models.tokens import Inputs, Tokens
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import MULTIPLE, Budget, Seeds
from tandem.training.lists import Batch


@dataclass(eq=False)
class Seq2Seq:
    """-(1/T) Σ_t log P(y_t | y_<t, x) over the T tokens y_t of all targets of a batch, its last tokens included.

    The decoder reads the target itself up to each token (teacher forcing). The loss is a mean over all tokens of the
    batch, so that longer targets weigh more, as in transformers' and T5's own training; micro-batches and processes do
    not change it. With `label_smoothing` ε a token's loss is
    (1 - ε) · -log P(y_t) + ε · mean over the vocabulary V of -log P(v).

    Attributes:
        tokens: the inputs (`passages`) and the targets (`queries`), special tokens included.
        padding: the id that pads rows.
    """

    model: Any
    tokens: Tokens
    train: Seq2SeqTrain
    padding: int
    budget: Budget
    world: World = SINGLE_PROCESS

    def __post_init__(self) -> None:
        self.models = nn.ModuleDict({"generator": self.model})

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`; with label smoothing, `nll` is the cross-entropy without it, in addition to `loss`."""
        every = int(self.tokens.queries.lengths(batch.queries).sum())
        own = self.world.share(batch)
        sources = self.tokens.passages.take(own.passages[:, 0])
        targets = self.tokens.queries.take(own.queries)
        lengths = np.diff(sources.offsets) + np.diff(targets.offsets)
        smoothed = self.train.label_smoothing > 0
        sums = torch.zeros(2, dtype=torch.float64)
        parts = (
            make_micro_batches(lengths, self.budget.micro_tokens, MULTIPLE, None)
            if len(lengths)
            else []
        )
        for number, rows in enumerate(parts):
            seeds.child(number).set()
            loss, likelihood = self.losses(sources.take(rows), targets.take(rows))
            (loss / every).backward()
            sums += torch.stack([loss.detach(), -likelihood.detach()]).double().cpu()
        loss_sum, nll = (sums / every).tolist()
        return {"loss": loss_sum, "nll": nll} if smoothed else {"loss": loss_sum}

    def losses(self, sources: Ragged, targets: Ragged) -> tuple[Tensor, Tensor]:
        """Return the loss of some pairs and the log-likelihood of their targets, both summed over all tokens."""
        with precision(self.train.precision):
            logits, labels = target_logits(self.model, sources, targets, self.padding, MULTIPLE)
        logits = logits.double() if logits.dtype == torch.float64 else logits.float()
        loss = nn.functional.cross_entropy(
            logits, labels, reduction="sum", label_smoothing=self.train.label_smoothing
        )
        with torch.no_grad():
            likelihood = logits.log_softmax(-1).gather(1, labels[:, None]).sum()
        return loss, likelihood


def target_logits(
    model: Any, sources: Ragged, targets: Ragged, padding: int, multiple: int = 1
) -> tuple[Tensor, Tensor]:
    """Return a generator's logits where it is to write each token of the targets, and these tokens, row after row.

    Shapes (tokens, vocabulary) and (tokens,).
    """
    labels = move_to_device(torch.from_numpy(np.asarray(targets.ids, np.int64)))
    if model.config.is_encoder_decoder:
        read = place_all(pad_texts(sources, padding, multiple))
        # A decoder reads the start token before its first token, and before each other one the preceding token.
        shifted = np.asarray(targets.ids, np.int64).copy()
        shifted[1:] = targets.ids[:-1]
        shifted[targets.offsets[:-1]] = start_token(model) or 0
        written = place_all(pad_texts(Ragged(shifted, targets.offsets), padding, multiple))
        options = {
            "decoder_input_ids": written["input_ids"],
            "decoder_attention_mask": written["attention_mask"],
        }
        logits = model(**read, **options, use_cache=False).logits
        return logits[written["attention_mask"].bool()], labels
    both = Inputs.join([(sources, 0), (targets, 1)], True, padding)
    inputs = both.to_tensors(multiple)
    is_target = move_to_device(inputs.pop("token_type_ids").bool())
    logits = model(**place_all(inputs), use_cache=False).logits
    # The logits at a position are those of the next token.
    return logits[:, :-1][is_target[:, 1:]], labels


def pad_texts(
    texts: Ragged, padding: int, multiple: int = 1, left: bool = False
) -> dict[str, Tensor]:
    """Return texts as `input_ids` and `attention_mask`, padded after the texts, or before them with `left`."""
    lengths = np.diff(texts.offsets)
    inputs = Inputs(np.asarray(texts.ids, np.int64), None, lengths, padding).to_tensors(multiple)
    if not left:
        return inputs
    width = inputs["input_ids"].shape[1]
    # Column c of a row that is moved to the right holds what was at c - (width - length).
    moved = (torch.arange(width) - (width - torch.from_numpy(lengths))[:, None]) % width
    return {name: tensor.gather(1, moved) for name, tensor in inputs.items()}


@torch.inference_mode()
def log_likelihoods(model: Any, sources: Ragged, targets: Ragged, padding: int) -> Ids:
    """Return log P(target | source) of each pair, summed over its tokens, float64, shape (pairs,)."""
    logits, labels = target_logits(model, sources, targets, padding)
    tokens = logits.float().log_softmax(-1).gather(1, labels[:, None])[:, 0].double().cpu().numpy()
    return np.asarray(np.add.reduceat(tokens, targets.offsets[:-1]))
