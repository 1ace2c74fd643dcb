"""Generators of text, their texts, the datasets and runs that are made of these, and the stages' parameters."""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tandem.config.base import IfSet, Precision, Section, by_value, equals, problem
from tandem.config.datasets import AnswerMatch, OfSearched, SplitsOf
from tandem.config.encoders import Published, Shape
from tandem.config.references import Input, RunRef
from tandem.config.retrieval import Inference
from tandem.config.training import Lora, Optimisation
from tandem.extras.language_models.options import Endpoint, LanguageModel, check_served
from tandem.stages.base import Params
from tandem.stages.retrieval import RunParams
from tandem.stages.training import EncoderParams

PASSAGE, QUERY = "{passage}", "{query}"  # the places of the text in a prompt
PLAIN = PASSAGE
PASSAGES_PER_PART = 1024  # whose texts are generated together: the most that a killed stage loses
TEXTS_PER_PART = 1 << 14  # texts that are scored together
SCORES_FILE = "scores.parquet"
Method = Literal["greedy", "beam", "top_k", "nucleus"]
# what a generator learns to write
Target = Literal["query", "answer", "sentence", "title", "passage"]


def _has_one_text(prompt: str) -> str:
    """Refuse a prompt without a place for the text, or with several."""
    count = prompt.count(PASSAGE) + prompt.count(QUERY)
    if count != 1:
        found = "names no passage" if not count else f"has {count} places for a text"
        raise problem(
            f" {found}; write {PASSAGE} (of generations over queries: {QUERY}) once, where the text stands"
        )
    return prompt


Prompt = Annotated[str, AfterValidator(_has_one_text)]


class Reads(Section):
    """The form in which a generator reads a text."""

    prompt: Prompt = Field(
        PLAIN,
        exclude_if=equals(PLAIN),
        description="the generator's input: {passage} or {query}, with words around it",
    )


class ReadsTokens(Reads):
    """What a generator that runs in the stage reads and writes, in tokens."""

    length: int = Field(
        256,
        ge=8,
        description="tokens that the generator reads, the prompt's and special ones included",
    )


class PublishedGenerator(ReadsTokens, Published):
    """A published generator: an encoder with a decoder (T5, BART), or only a decoder."""

    shape: Shape | None = Field(
        None, description="sizes of the encoder of a generator that is not yet downloaded"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.layers is not None:
            raise problem(f".layers is {self.layers}, but a generator is taken whole; leave it out")
        return self


NEW_LAYERS = 2  # layers on each side of a new T5


class NewGenerator(Section):
    """Sizes of a T5 with random weights, with the vocabulary of the configuration's encoder."""

    heads: int = Field(6, ge=1, description="attention heads")
    feed_forward: int = Field(1024, ge=1, description="dimension within the feed-forward layers")
    hidden: int | None = Field(
        None,
        ge=1,
        description="dimension of the states; null: that of the encoder, whose word vectors it starts with",
    )


class Seq2SeqTrain(Optimisation):
    """How a generator is trained: to write a passage's query, token after token."""

    pairs_per_batch: int = Field(
        32, ge=1, description="pairs of a text and its target per step, over all devices"
    )
    lr: float = Field(1e-4, gt=0, description="peak learning rate")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a token's weight that is spread over all tokens"
    )


class TrainedGenerator(ReadsTokens, NewGenerator):
    """A generator that is trained on a collection's own training pairs."""

    source: Literal["train"] = Field(description="where the generator comes from")
    dataset: str | None = Field(None, description="dataset of its training pairs; null: `train_on`")
    start: str | None = Field(
        None,
        description="what it starts from: a generator, or an encoder, whose layers become its encoder and its decoder "
        "(BERT2BERT); `encoder`: the configuration's; null: a T5 of random weights",
    )
    layers: int | None = Field(
        None,
        ge=1,
        description="transformer layers of its encoder; if it starts from an encoder, the first ones of that, null: "
        f"all; for a new T5 null: {NEW_LAYERS}",
    )
    decoder_layers: int | None = Field(
        None, ge=1, description="transformer layers of its decoder, likewise"
    )
    split: str = Field("train", description="the queries' split")
    target: Target = Field(
        "query",
        exclude_if=equals("query"),
        description="what it learns to write: for a passage its query; or for a query (prompt {query}) its answer, or "
        "the sentence, title, or text of a relevant passage (GAR)",
    )
    target_length: int = Field(
        32, ge=2, description="tokens of a target that it learns, the last one included"
    )
    lora: Lora | None = Field(
        None, description="learn low-rank adapters instead of all weights; merged when saved"
    )
    train: Seq2SeqTrain = Field(Seq2SeqTrain(), description="how it is trained")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        own = [key for key in NewGenerator.model_fields if key in self.model_fields_set]
        if self.start is None and self.lora:
            new = "a new T5's weights are random, to which adapters of low rank add nothing"
            raise problem(f".lora: {new}; say start, or leave lora out")
        if self.start is not None and own:
            raise problem(
                f".{own[0]} cannot be set beside start, which brings its own; leave it out"
            )
        if self.hidden is not None and self.hidden % self.heads:
            raise problem(f".hidden is {self.hidden}, which heads ({self.heads}) does not divide")
        return self


class AskedGenerator(Reads, LanguageModel):
    """A language model behind an OpenAI-compatible server."""

    source: Literal["endpoint"] = Field(description="where the generator comes from")
    endpoint: Endpoint = Field(description="the server")

    @model_validator(mode="after")
    def _is_served(self) -> Self:
        check_served(self)
        if "seed" in self.extra_body:
            raise problem(".extra_body has seed, which tells a passage's texts apart; leave it out")
        return self


GeneratorEntry = PublishedGenerator | TrainedGenerator | AskedGenerator
GENERATORS: dict[str, type[GeneratorEntry]] = by_value(
    "source", PublishedGenerator, TrainedGenerator, AskedGenerator
)


class Decoding(Inference):
    """How texts are generated, token after token.

    Drawn texts depend only on the seed, the passage's id and the text's number: with more texts, shards or restarts, a
    text stays the same. So it does in other batches, except for the last bits of the model's arithmetic: in bf16 they
    may change a token if two are almost equally likely. A server draws by its own random numbers.
    """

    method: Method = Field(
        "top_k",
        description="greedy: the likeliest token; beam: a beam search's best; top_k, nucleus: drawn",
    )
    number: int = Field(5, ge=1, description="texts per passage; for greedy 1")
    top_k: int = Field(10, ge=1, description="for top_k: number of likeliest tokens to draw from")
    top_p: float = Field(
        0.95,
        gt=0,
        le=1,
        description="for nucleus: total probability of the tokens to draw from",
    )
    temperature: float = Field(1.0, gt=0, description="for top_k and nucleus: divides the logits")
    beams: int = Field(4, ge=2, description="for beam: number of beams")
    tokens: int = Field(32, ge=1, description="tokens of a text, at most")
    until: IfSet[str] = Field(
        "",
        max_length=8,
        description="text that ends a generated text, such as a line end; empty: only the end token",
    )
    batch_tokens: int = Field(
        16384, ge=64, description="tokens that a batch reads, copies and padding included"
    )

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        most = {"greedy": 1, "beam": self.beams}.get(self.method)
        if most is not None and self.number > most:
            raise problem(
                f".number is {self.number}, but method {self.method} gives {most}; lower it, or draw texts"
            )
        return self


# share of queries that are left out if a scorer but no share is given (Doc2Query--'s 70 % on MS MARCO)
DROP_SHARE = 0.7


class Appended(Section):
    """The generated queries that are appended to a passage."""

    from_: Annotated[str, Input()] = Field(alias="from", description="entry of `generations`")
    number: int = Field(
        5,
        ge=1,
        description="queries appended to a passage, the first ones; at most the entry's `number`",
    )
    drop_by: Annotated[str | None, Input()] = Field(
        None,
        description="cross-encoder or dual encoder by whose scores queries are left out (Doc2Query--); null: none",
    )
    drop_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="for `drop_by`: share of all queries, the lowest, that is left out; null: 0.7, as Doc2Query--",
    )


class Expanded(Appended, OfSearched):
    """The passages of a dataset, each with appended queries that a generator wrote for it (doc2query)."""

    source: Literal["expanded"]


class GeneratedQueries(OfSearched):
    """Generated queries as training queries, each with its passage as positive (InPars, Promptagator)."""

    always_has = ("train",)
    corpus_key = "of"
    source: Literal["generated_queries"]
    from_: Annotated[str, Input()] = Field(alias="from", description="entry of `generations`")
    number: int = Field(
        1, ge=1, description="queries per passage, the first ones; at most the entry's `number`"
    )
    found_by: Annotated[str | None, Input()] = Field(
        None,
        description="run that must retrieve a query's passage (round-trip consistency); null: all queries are kept",
    )
    found_within: int = Field(1, ge=1, description="for `found_by`: the lowest rank that counts")
    best: int | None = Field(None, ge=1, description="number of best queries to keep; null: all")
    best_by: Annotated[str | None, Input()] = Field(
        None,
        description="cross-encoder or dual encoder that decides which are best; null: tokens' mean log-likelihood",
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return nothing: the dataset's queries are not inherited."""
        return set()


class Expansion(Appended):
    """A run over passages with appended generated queries, as a run over the passages: entry of `expansions`."""

    of: RunRef = Field(
        "bm25", description="the run over the expanded passages: BM25, uniCOIL, any other"
    )


class Generation(Decoding):
    """Texts of passages or queries by a generator, an entry of `generations`."""

    by: str = Field(description="the generator")
    of: Literal["passages", "queries"] = Field(
        "passages", description="what the generator reads; queries are those of the searched split"
    )
    passages: IfSet[int | None] = Field(
        None, ge=1, description="number of passages to read, chosen by their ids' hash; null: all"
    )
    seed: int | None = Field(None, ge=0, description="seed of drawing; null: the configuration's")


class GeneratorParams(EncoderParams):
    """A published generator, copied and checked."""


class NewGeneratorParams(NewGenerator, Params):
    """A T5 with random weights and the vocabulary of the input `encoder`."""

    layers: int = Field(NEW_LAYERS, ge=1, description="transformer layers of its encoder")
    decoder_layers: int = Field(NEW_LAYERS, ge=1, description="transformer layers of its decoder")
    seed: int = Field(description="seed of the random weights")


class EncoderDecoderParams(Params):
    """An encoder with a decoder; both start with the layers of the input `encoder`."""

    layers: int | None = Field(
        None, ge=1, description="number of its first layers in the encoder; null: all"
    )
    decoder_layers: int | None = Field(
        None, ge=1, description="number of its first layers in the decoder; null: all"
    )
    seed: int = Field(description="seed of weights that the encoder does not have")


class TrainGeneratorParams(Params):
    """Training of a generator on a dataset's pairs of a passage and a query, or of a query and its context."""

    objective: Literal["seq2seq"] = Field(
        "seq2seq", description="what is learned: each token of the target"
    )
    prompt: Prompt = Field("{passage}", description="what the generator reads")
    target: Target = Field(
        "query", exclude_if=equals("query"), description="what it learns to write"
    )
    match: AnswerMatch = Field(
        "string",
        exclude_if=equals("string"),
        description="for sentences: how an answer is found in one",
    )
    length: int = Field(
        256,
        ge=8,
        description="tokens that the generator reads, the prompt's and special ones included",
    )
    target_length: int = Field(32, ge=2, description="tokens of a target, the last one included")
    split: str = Field("train", description="the queries' split")
    lora: Lora | None = Field(
        None, exclude_if=not_, description="learn low-rank adapters instead of all weights"
    )
    train: Seq2SeqTrain = Field(description="how the generator is trained; the seed is set")


class AskedModel(LanguageModel):
    """A language model behind a server."""

    url: str = Field(description="the server's address")


class GeneratedParams(Decoding, Params):
    """Texts of passages or queries by a generator, or by a language model behind a server."""

    side: Literal["passages", "queries"] = Field("passages", description="what is read")
    split: str | None = Field(
        None, exclude_if=not_, description="split of the queries, if these are read"
    )
    passages: int | None = Field(
        None, exclude_if=not_, description="number of passages to read, chosen by their ids' hash"
    )
    prompt: Prompt = Field("{passage}", description="what the generator reads")
    length: int = Field(
        256, ge=8, description="tokens that it reads, the prompt's and special ones included"
    )
    seed: int = Field(description="seed of drawing")
    asked: AskedModel | None = Field(
        None, exclude_if=not_, description="the language model instead of `generator`"
    )


class ScoreGeneratedParams(Params):
    """Scores of generated texts, as queries, with their passages."""

    number: int = Field(1, ge=1, description="texts per passage that are scored, the first ones")
    query_length: int = Field(ge=1, description="longest query, in tokens without special ones")
    passage_length: int = Field(ge=1, description="longest passage, in tokens without special ones")
    precision: Precision = Field("auto", description="auto: bf16 where that is faster")
    batch_tokens: int = Field(4096, ge=64, description="tokens of a batch, padding included")


class ExpansionParams(RunParams):
    """A run over passages with appended generated queries, as one over the passages."""
