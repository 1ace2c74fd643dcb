"""The objective `seq2seq` over tiny texts; as a program, the losses and gradients of each of two processes.

`seq2seq_cases.py <folder>` writes `<folder>/<rank>.safetensors` and `<rank>.json`.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ranks import together
from several_processes import compute_cases, compute_step
from tiny_training import WORDS, texts, weigh
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
)

from tandem.contrib.generation.options import Seq2SeqTrain
from tandem.contrib.generation.seq2seq import Seq2Seq
from tandem.models.learning import set_dropout
from tandem.training.distributed import SINGLE_PROCESS
from tandem.training.forward import Budget
from tandem.training.lists import Batch

BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)
SMALL = Budget(micro_tokens=40, graph_tokens=1)
IDS = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2}
BATCH = Batch(np.array([0, 4, 7, 4, 11, 19, 2]), np.array([3, 40, 17, 3, 8, 59, 22])[:, None])
COUNTS = (7, 1)  # of two processes: uneven shares, and a share without a pair
FAMILIES = ("t5", "bart", "bert2bert", "qwen3")


def model(family):
    """A tiny generator; `objective` sets its weights."""
    with torch.random.fork_rng():
        if family == "t5":
            size = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1, "num_heads": 4}
            return T5ForConditionalGeneration(
                T5Config(vocab_size=WORDS, decoder_start_token_id=0, **size, **IDS)
            )
        if family == "bart":
            stack = {"layers": 1, "attention_heads": 4, "ffn_dim": 64}
            size = {
                f"{side}_{name}": value
                for side in ("encoder", "decoder")
                for name, value in stack.items()
            }
            options = {"d_model": 32, "max_position_embeddings": 64, "decoder_start_token_id": 3}
            return BartForConditionalGeneration(
                BartConfig(vocab_size=WORDS, **options, **size, **IDS)
            )
        size = {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
        }
        if family == "bert2bert":
            sides = [BertConfig(vocab_size=WORDS, **size, **IDS) for _ in range(2)]
            return EncoderDecoderModel(
                EncoderDecoderConfig.from_encoder_decoder_configs(
                    *sides, decoder_start_token_id=2, **IDS
                )
            )
        return AutoModelForCausalLM.from_config(
            Qwen3Config(vocab_size=WORDS, num_key_value_heads=2, head_dim=8, **size, **IDS)
        )


def objective(family, budget=BIG, world=SINGLE_PROCESS, dropout=0.0, dtype=torch.float64, **train):
    """The objective over a family's model with the same weights at each call."""
    params = Seq2SeqTrain.model_validate({"precision": "fp32", **train})
    learner = Seq2Seq(model(family), texts(), params, 0, budget, world)
    weigh(learner.models, 2, dtype)
    set_dropout(learner.models, dropout)
    learner.models.train()
    return learner


def results(family, budget=BIG, count=COUNTS[0], world=SINGLE_PROCESS, **more):
    """Reported values and the gradient of every parameter, of a step over the first pairs."""
    return compute_step(objective(family, budget, world, **more), BATCH.select(slice(0, count)))


if __name__ == "__main__":
    budgets = {"big": BIG, "small": SMALL}
    together(2, partial(compute_cases, Path(sys.argv[1]), results, FAMILIES, COUNTS, budgets))
