"""Cost functions of generated texts: training a generator, generating, and scoring what was generated."""

from dataclasses import replace
from math import ceil

from tandem.extras.estimate.model_costs import BACKWARD, TRAINED
from tandem.extras.estimate.resources import PROCESS, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import NAMED, mapped_tokens, named
from tandem.plan.graph import Stage
from tandem.plan.sizes import EncoderShape

CHARACTERS = 40  # of a generated text, about
EACH_TEXT = CHARACTERS + 20  # bytes, packed to about a third
SLOW = 8  # times as long as a forward pass of as many tokens: tokens are written one after the other


def generator_shapes(stage: Stage, setting: Setting) -> tuple[EncoderShape, EncoderShape]:
    """The sizes of a generator's encoder and decoder; a published one's decoder is as large as its encoder."""
    if start := stage.upstream.get("start"):
        return generator_shapes(start, setting)
    if "encoder" not in stage.upstream:
        shape = setting.shape(stage)
        return shape, shape
    params, vocabulary = params_of(stage), setting.shape(stage.upstream["encoder"])
    hidden = params.hidden or vocabulary.hidden
    shape = EncoderShape(params.layers, hidden, params.feed_forward, vocabulary.vocabulary, 1)
    return shape, replace(shape, layers=params.decoder_layers)


def writing(decoder: EncoderShape, texts: float, tokens: float, read: float) -> float:
    """Operations of a decoder's forward pass over texts: its layers, attention to what was read, the vocabulary."""
    attending = 2 * (2 * decoder.hidden**2) + 4 * read * decoder.hidden
    return decoder.forward(texts, tokens) + texts * tokens * (
        decoder.layers * attending + 2.0 * decoder.hidden * decoder.vocabulary
    )


@cost("train_generator")
def train_generator(stage: Stage, setting: Setting) -> Work:
    """The pairs of a step forward and backward."""
    params, (encoder, decoder) = params_of(stage), generator_shapes(stage, setting)
    train, size = params.train, setting.size(stage)
    pairs = setting.positives(stage, params.split)
    steps = train.steps or ceil(train.epochs * pairs / train.pairs_per_batch)
    read = size.tokens("passage", params.length) + 2
    target = size.tokens("query", params.target_length) + 1
    once = encoder.forward(train.pairs_per_batch, read) + writing(decoder, train.pairs_per_batch, target, read)
    weights = encoder.parameters + decoder.parameters
    activations = encoder.activations(setting.execution.micro_tokens, read, setting.activation_bytes)
    memory = PROCESS + setting.held + TRAINED * weights + 2 * activations
    return Work("dual", BACKWARD * once * steps, memory=memory, disk=4 * weights, steps=steps)


@cost("generated")
def generated(stage: Stage, setting: Setting) -> Work:
    """Reading every passage once and writing its texts; of a server the time and price are not known."""
    params = params_of(stage)
    if params.side == "queries":
        read, texts = setting.size(stage).tokens("query", params.length), setting.queries(stage, params.split)
    else:
        passages = setting.passages(stage)
        read, texts = setting.size(stage).tokens("passage", params.length), min(passages, params.passages or passages)
    disk = texts * params.number * EACH_TEXT / 3
    if params.asked:
        return Work(disk=disk)
    encoder, decoder = generator_shapes(stage.upstream["generator"], setting)
    copies = params.beams if params.method == "beam" else params.number
    tokens = min(params.tokens, setting.size(stage).lengths["query"] + 1)
    operations = encoder.forward(texts, read) + SLOW * writing(decoder, texts * copies, tokens, read)
    rows = params.batch_tokens / read  # whose logits stand in memory, two or three times
    memory = PROCESS + 4 * (encoder.parameters + decoder.parameters) + 12 * rows * decoder.vocabulary
    return Work("encode", operations, memory=memory, disk=disk)


@cost("score_generated")
def score_generated(stage: Stage, setting: Setting) -> Work:
    """Scoring every text with its passage, as in re-ranking."""
    params, read = params_of(stage), stage.upstream["tokens"]
    texts = params_of(stage.upstream["generated"])
    passages = setting.passages(stage)
    count = min(passages, texts.passages or passages) * min(params.number, texts.number)
    shape, length = setting.shape(read), setting.pair_length(read)
    memory = PROCESS + 4 * shape.parameters + mapped_tokens(read, setting) + NAMED * passages
    return Work("rerank", shape.forward(count, length), memory=memory, disk=4.0 * count)


@cost("expansion")
def expansion(stage: Stage, setting: Setting) -> Work:
    """Reading a run and writing it again."""
    lines = 2 * setting.queries(stage) * params_of(stage).depth
    return Work(rows=(("lines", lines),), memory=named(stage, setting), run=setting.run(stage))
