"""Stages `generator`, a published generator copied and checked, and `new_generator`, a T5 of random weights."""

from typing import Any

import torch

from tandem.contrib.generation.options import GeneratorParams, NewGeneratorParams
from tandem.errors import UserError
from tandem.models.folders import check_folder, hash_weights
from tandem.models.generators import load_generator
from tandem.models.heads import check_generator
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.published import copy_model, find_source, record_origin, require_files
from tandem.models.tokens import Template
from tandem.store.job import Job, writing


def run(job: Job[GeneratorParams]) -> None:
    """Copy a published generator's files into `hf/` after checking them."""
    params = job.params
    source, commit = find_source(job)
    check_folder(source)
    check_generator(source)
    weights = hash_weights(source)
    if params.sha256 and weights != params.sha256:
        raise UserError(
            f"{source}: the sha256 of its weights is {weights}, expected {params.sha256}"
        )
    require_files(source, params)
    load_generator(source)
    with writing(job) as draft:
        copy_model(source, draft)
        record_origin(job, draft, weights, commit)


def run_new(job: Job[NewGeneratorParams]) -> None:
    """Write a T5 with the vocabulary of the input `encoder`, and its vectors of words where `hidden` is null.

    Its decoder begins behind the token that the tokenizer puts before a text, and ends with the one behind it.
    """
    folder, params = job.inputs["encoder"].folder / "hf", job.params
    tokenizer = load_tokenizer(folder)
    before, after = Template.of(tokenizer).single
    if not after or tokenizer.pad_token_id is None:
        lacking = "no token behind a text" if not after else "no padding token"
        raise UserError(
            f"{folder}: its tokenizer has {lacking}, by which a generator's texts would end"
        )
    start = before[-1] if before else tokenizer.pad_token_id
    words, hidden = None, params.hidden or 0
    if params.hidden is None:
        words = load_encoder(folder).get_input_embeddings().weight.detach()
        hidden = int(words.shape[1])
    if hidden % params.heads:
        raise UserError(
            f"{job.key}: heads is {params.heads}, which does not divide the encoder's dimension {hidden}"
        )
    model = _t5(params, hidden, len(tokenizer), words, start, after[-1], tokenizer.pad_token_id)
    with writing(job) as draft:
        model.save_pretrained(draft.folder / "hf")
        tokenizer.save_pretrained(draft.folder / "hf")
        draft.facts |= {
            "vocabulary": len(tokenizer),
            "weights": sum(p.numel() for p in model.parameters()),
        }


def _t5(
    params: NewGeneratorParams,
    hidden: int,
    vocabulary: int,
    words: Any,
    start: int,
    end: int,
    padding: int,
) -> Any:
    """A T5 of random weights; `words` are vectors of its vocabulary, or None."""
    from transformers import T5Config, T5ForConditionalGeneration

    rows = vocabulary if words is None else len(words)
    config = T5Config(
        vocab_size=rows,
        d_model=hidden,
        d_kv=hidden // params.heads,
        d_ff=params.feed_forward,
        num_layers=params.layers,
        num_decoder_layers=params.decoder_layers,
        num_heads=params.heads,
        decoder_start_token_id=start,
        eos_token_id=end,
        pad_token_id=padding,
    )
    torch.manual_seed(params.seed)
    model: Any = T5ForConditionalGeneration(config)
    if words is not None:  # as long as T5's own random ones, by which the first logits are near 1
        centred = words - words.mean(0)
        with torch.no_grad():
            model.shared.weight.copy_(centred / centred.square().mean().sqrt())
    return model
