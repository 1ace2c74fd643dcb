"""Stages with the models that generators start from, or with a published generator.

`generator`: a published one, copied and checked; `new_generator`: a T5 with random weights; `encoder_decoder`: a
pre-trained encoder's layers on both sides.
"""

from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from tandem.contrib.generation.generator_folders import check_decoding, check_generator
from tandem.contrib.generation.generators import load_generator
from tandem.contrib.generation.options import (
    EncoderDecoderParams,
    GeneratorParams,
    NewGeneratorParams,
)
from tandem.errors import UserError
from tandem.models.folders import check_folder, hash_weights, read_model_json
from tandem.models.hub import (
    check_weights,
    count_ids,
    from_folder,
    load_configuration,
    load_encoder,
    load_tokenizer,
)
from tandem.models.published import copy_model, find_source, record_origin, require_files
from tandem.models.tokens import Template
from tandem.store.job import Draft, Job, writing

_POOLER = "pooler."
_TO_ENCODER = (
    "crossattention"  # its name in a decoder's layer, in every family of `DECODING_FAMILIES`
)


class SpecialTokens(NamedTuple):
    """Ids of the tokens with which a generator's texts begin and end, and of the one that pads rows."""

    start: int
    end: int
    padding: int

    @classmethod
    def of(cls, folder: Path, tokenizer: Any) -> Self:
        """Return those of an encoder's tokenizer: the token that it puts before a text, or else its padding; and after.

        Raises:
            UserError: it puts nothing after a text, or has no padding.
        """
        before, after = Template.of(tokenizer).single
        if not after or tokenizer.pad_token_id is None:
            lacking = "no token behind a text" if not after else "no padding token"
            raise UserError(
                f"{folder}: its tokenizer has {lacking}, by which a generator's texts would end"
            )
        return cls(
            before[-1] if before else tokenizer.pad_token_id, after[-1], tokenizer.pad_token_id
        )


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
    """Write a T5 with the vocabulary of the input `encoder`, and with its word vectors if `hidden` is null.

    Its decoder begins after the token that the tokenizer puts before a text, and ends with the one after a text.
    """
    folder, params = job.inputs["encoder"].folder / "hf", job.params
    tokenizer = load_tokenizer(folder)
    special = SpecialTokens.of(folder, tokenizer)
    words, hidden = None, params.hidden or 0
    if params.hidden is None:
        words = load_encoder(folder).get_input_embeddings().weight.detach()
        hidden = int(words.shape[1])
    if hidden % params.heads:
        raise UserError(
            f"{job.key}: heads is {params.heads}, which does not divide the encoder's dimension {hidden}"
        )
    model = _t5(params, hidden, count_ids(tokenizer), words, special)
    with writing(job) as draft:
        _write(draft, model, tokenizer)


def _write(draft: Draft, model: Any, tokenizer: Any) -> None:
    """Write the model and the tokenizer that a generator starts from, and count the weights."""
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
    special: SpecialTokens,
) -> Any:
    """Return a T5 with random weights; `words` are vectors of its vocabulary, or None."""
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
        decoder_start_token_id=special.start,
        eos_token_id=special.end,
        pad_token_id=special.padding,
    )
    torch.manual_seed(params.seed)
    model: Any = T5ForConditionalGeneration(config)
    if words is not None:  # scaled to T5's own random ones: the first logits are near 1
        centred = words - words.mean(0)
        with torch.no_grad():
            model.shared.weight.copy_(centred / centred.square().mean().sqrt())
    return model


def run_encoder_decoder(job: Job[EncoderDecoderParams]) -> None:
    """Write an encoder with a decoder that both start with the weights of the input `encoder` (BERT2BERT).

    Rothe, Narayan and Severyn 2020: the decoder has the encoder's words, positions and layers, sees only what precedes
    a token, and computes logits by the word vectors. Two parts are new. Its attention to the encoder starts as the same
    layer's attention to its own text: one of two ways that Ma et al. (2021, DeltaLM) name; the other, Rothe et al.'s,
    is random. The layer before the logits is drawn, unless the encoder's files have a head that predicts hidden tokens.
    The decoder begins after the token that the tokenizer puts before a text, and ends with the one after a text.
    """
    folder, params = job.inputs["encoder"].folder / "hf", job.params
    config = read_model_json(folder / "config.json")
    check_decoding(config, str(folder / "config.json"))
    size = config["num_hidden_layers"]
    for key, layers in (("layers", params.layers), ("decoder_layers", params.decoder_layers)):
        if layers is not None and layers > size:
            raise UserError(f"{job.key}: {key} is {layers}, but the encoder has {size}; lower it")
    tokenizer = load_tokenizer(folder)
    special = SpecialTokens.of(folder, tokenizer)
    torch.manual_seed(params.seed)
    model = _encoder_decoder(folder, params.layers, params.decoder_layers, special)
    with writing(job) as draft:
        _write(draft, model, tokenizer)


def _encoder_decoder(
    folder: Path, layers: int | None, decoder_layers: int | None, special: SpecialTokens
) -> Any:
    """Return transformers' model of an encoder's first layers, with a decoder of its first layers."""
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        EncoderDecoderConfig,
        EncoderDecoderModel,
        GenerationConfig,
    )

    config = load_configuration(folder, layers)
    encoder, report = from_folder(AutoModel, folder, config=config)
    new = [name for name in report["missing_keys"] if name.startswith(_POOLER)]
    check_weights(folder, report, sorted(set(report["missing_keys"]) - set(new)))
    for name in new:  # nothing reads it, but transformers expects it in the saved files
        torch.nn.init.zeros_(encoder.get_parameter(name))

    config = load_configuration(folder, decoder_layers)
    config.is_decoder = config.add_cross_attention = config.tie_word_embeddings = True
    decoder, report = from_folder(AutoModelForCausalLM, folder, config=config)
    body = f"{decoder.base_model_prefix}."
    lacking = [
        name for name in report["missing_keys"] if name.startswith(body) and _TO_ENCODER not in name
    ]
    check_weights(folder, report, sorted(lacking))
    for layer in decoder.modules():
        if hasattr(layer, _TO_ENCODER):
            layer.crossattention.load_state_dict(layer.attention.state_dict())

    ids = {
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
        "pad_token_id": special.padding,
    }
    both = EncoderDecoderConfig.from_encoder_decoder_configs(encoder.config, decoder.config, **ids)
    model: Any = EncoderDecoderModel(both, encoder, decoder)
    model.generation_config = GenerationConfig(**ids)
    return model
