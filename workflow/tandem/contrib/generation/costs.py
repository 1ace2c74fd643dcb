"""Cost functions of generated texts: training a generator, generating, and scoring the generated texts."""

from dataclasses import replace
from math import ceil

from tandem.contrib.generation.options import DROP_SHARE, EncoderDecoderParams
from tandem.extras.estimate.model_costs import FORWARD_AND_BACKWARD, measure_learning_weights
from tandem.extras.estimate.resources import (
    PROCESS_BYTES,
    TOKENS_PER_SENTENCE,
    Setting,
    Volumes,
    Work,
    cost,
    derived_size,
    params_of,
)
from tandem.extras.estimate.stage_costs import BYTES_PER_ID, measure_mapped_tokens
from tandem.plan.graph import Stage
from tandem.plan.sizes import EncoderShape

# for about 40 characters and the other columns, packed to a third
_BYTES_PER_TEXT = (40 + 20) / 3
# times the cost of a forward pass over as many tokens: tokens are written one after another
_DECODING_FACTOR = 8


def measure_generator(stage: Stage, setting: Setting) -> tuple[EncoderShape, EncoderShape]:
    """Return the sizes of a generator's encoder and decoder; a published one's decoder is as large as its encoder."""
    start = stage.upstream.get("start")
    if start:
        return measure_generator(start, setting)
    if "encoder" not in stage.upstream:
        shape = setting.shape(stage)
        return shape, shape

    params, words = params_of(stage), setting.shape(stage.upstream["encoder"])
    if isinstance(params, EncoderDecoderParams):
        counts = (params.layers or words.layers, params.decoder_layers or words.layers)
        return replace(words, layers=counts[0]), replace(words, layers=counts[1])
    encoder = EncoderShape(
        params.layers, params.hidden or words.hidden, params.feed_forward, words.vocabulary, 1
    )
    return encoder, replace(encoder, layers=params.decoder_layers)


def count_writing(decoder: EncoderShape, texts: float, tokens: float, read: float) -> float:
    """Return the operations of a decoder's forward pass over texts.

    They are those of its layers, of attention to the `read` tokens, and of the projection to the vocabulary.
    """
    attention = 2 * (2 * decoder.hidden**2) + 4 * read * decoder.hidden
    projection = 2.0 * decoder.hidden * decoder.vocabulary
    return decoder.forward(texts, tokens) + texts * tokens * (
        decoder.layers * attention + projection
    )


_FEW_TOKENS = 5  # tokens of an answer, or of a title


def count_pair_tokens(stage: Stage, size: Volumes) -> tuple[float, float]:
    """Return how many tokens of a training pair a generator reads, and how many it learns to write."""
    params = params_of(stage)
    if params.target == "query":
        return size.tokens("passage", params.length), size.tokens("query", params.target_length)
    lengths = {
        "answer": _FEW_TOKENS,
        "title": _FEW_TOKENS,
        "sentence": TOKENS_PER_SENTENCE,
        "passage": size.lengths["passage"],
    }
    return size.tokens("query", params.length), min(params.target_length, lengths[params.target])


@cost("train_generator")
def estimate_train_generator(stage: Stage, setting: Setting) -> Work:
    """Estimate the forward and backward passes over the pairs of all steps."""
    params, size = params_of(stage), setting.size(stage)
    train = params.train
    encoder, decoder = measure_generator(stage, setting)
    pairs = setting.positives(stage, params.split)
    steps = train.steps or ceil(train.epochs * pairs / train.pairs_per_batch)

    read, target = count_pair_tokens(stage, size)
    read, target = read + 2, target + 1
    forward = encoder.forward(train.pairs_per_batch, read)
    forward += count_writing(decoder, train.pairs_per_batch, target, read)

    weights = encoder.parameters + decoder.parameters
    activations = encoder.activations(
        setting.execution.micro_tokens, read, setting.activation_bytes
    )
    memory = PROCESS_BYTES + setting.held + 2 * activations
    memory += sum(measure_learning_weights(shape, params.lora) for shape in (encoder, decoder))
    # with adapters, no gradient is computed for the frozen weights
    passes = FORWARD_AND_BACKWARD - (1 if params.lora else 0)
    operations = passes * forward * steps
    return Work(
        "dual", operations, width=encoder.hidden, memory=memory, disk=4 * weights, steps=steps
    )


@cost("generated")
def estimate_generated(stage: Stage, setting: Setting) -> Work:
    """Estimate reading every passage once and writing its texts; a server's time and price are not known."""
    params, size = params_of(stage), setting.size(stage)
    if params.side == "queries":
        read = size.tokens("query", params.length)
        texts = setting.queries(stage, params.split)
    else:
        read = size.tokens("passage", params.length)
        texts = min(size.passages, params.passages or size.passages)
    disk = texts * params.number * _BYTES_PER_TEXT
    if params.asked:
        return Work(disk=disk)

    encoder, decoder = measure_generator(stage.upstream["generator"], setting)
    copies = params.beams if params.method == "beam" else params.number
    # Any text may be written for a query: the estimate takes as many tokens as are allowed.
    tokens = (
        params.tokens if params.side == "queries" else min(params.tokens, size.lengths["query"] + 1)
    )
    operations = encoder.forward(texts, read)
    operations += _DECODING_FACTOR * count_writing(decoder, texts * copies, tokens, read)
    rows = params.batch_tokens / read  # whose logits are in memory, two or three times
    memory = (
        PROCESS_BYTES
        + 4 * (encoder.parameters + decoder.parameters)
        + 12 * rows * decoder.vocabulary
    )
    return Work("encode", operations, width=encoder.hidden, memory=memory, disk=disk)


@cost("score_generated")
def estimate_score_generated(stage: Stage, setting: Setting) -> Work:
    """Estimate scoring every text with its passage, as in re-ranking."""
    params, tokens = params_of(stage), stage.upstream["tokens"]
    texts = params_of(stage.upstream["generated"])
    passages = setting.passages(stage)
    count = min(passages, texts.passages or passages) * min(params.number, texts.number)
    shape, length = setting.shape(tokens), setting.pair_length(tokens)
    memory = (
        PROCESS_BYTES
        + 4 * shape.parameters
        + measure_mapped_tokens(tokens, setting)
        + BYTES_PER_ID * passages
    )
    operations = shape.forward(count, length)
    return Work("rerank", operations, width=shape.hidden, memory=memory, disk=4.0 * count)


@derived_size("expanded")
def measure_expanded(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of passages with queries appended."""
    kept = 1.0
    if "scores" in stage.upstream:
        kept -= stage.values.get("drop_share") or DROP_SHARE
    tokens = whole.lengths["passage"] + params_of(stage).number * whole.lengths["query"] * kept
    return replace(whole, lengths={**whole.lengths, "passage": tokens}, counted=False)


@derived_size("generated_queries")
def measure_queries(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a dataset of generated queries, each of which has one positive."""
    read = params_of(stage.upstream["generated"]).passages or whole.passages
    count = min(whole.passages, read) * params_of(stage).number
    count = min(count, stage.values.get("best") or count)
    return replace(whole, queries={"train": count}, positives={"train": count}, counted=False)
