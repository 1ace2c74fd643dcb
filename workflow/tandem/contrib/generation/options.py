"""Generators of text, what they write, the datasets and runs that are made of it, and the parameters of the stages."""

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

PASSAGE, QUERY = "{passage}", "{query}"  # where a prompt has the text
PLAIN = PASSAGE
PASSAGES_PER_PART = 1024  # whose texts are generated together: what a killed stage loses at most
TEXTS_PER_PART = 1 << 14  # that are scored together
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
    """What a generator reads of a text."""

    prompt: Prompt = Field(
        PLAIN,
        exclude_if=equals(PLAIN),
        description="what is read: {passage} or {query}, with words around it",
    )


class ReadsTokens(Reads):
    """What a generator that is computed here reads and writes of a text, in tokens."""

    length: int = Field(
        256, ge=8, description="tokens that it reads, the prompt's and special ones included"
    )


class PublishedGenerator(ReadsTokens, Published):
    """A published generator: an encoder with a decoder (T5, BART), or a decoder alone."""

    shape: Shape | None = Field(
        None, description="sizes of a generator not yet downloaded, those of its encoder"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.layers is not None:
            raise problem(f".layers is {self.layers}, but a generator is taken whole; leave it out")
        return self


NEW_LAYERS = 2  # of a new T5, each side


class NewGenerator(Section):
    """Sizes of a T5 of random weights, with the vocabulary of the configuration's encoder."""

    heads: int = Field(6, ge=1, description="attention heads")
    feed_forward: int = Field(1024, ge=1, description="dimension within the feed-forward layers")
    hidden: int | None = Field(
        None,
        ge=1,
        description="dimension of the states; null: the encoder's, whose vectors of words it begins with",
    )


class Seq2SeqTrain(Optimisation):
    """How a generator is trained: to write a passage's query, token after token."""

    pairs_per_batch: int = Field(
        32, ge=1, description="pairs of a text and its target per step, over all devices"
    )
    lr: float = Field(1e-4, gt=0, description="peak learning rate")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a token's weight that all tokens share"
    )


class TrainedGenerator(ReadsTokens, NewGenerator):
    """A generator that is trained here, on a collection's own training pairs."""

    source: Literal["train"] = Field(description="where it is from")
    dataset: str | None = Field(None, description="whose pairs it learns from; null: `train_on`")
    start: str | None = Field(
        None,
        description="what it learns from: a generator, or an encoder, whose layers become its encoder and its decoder "
        "(BERT2BERT); `encoder`: the configuration's; null: a T5 of random weights",
    )
    layers: int | None = Field(
        None,
        ge=1,
        description="transformer layers of its encoder; of a start that is an encoder its first ones, null: all; of a "
        f"new T5 null: {NEW_LAYERS}",
    )
    decoder_layers: int | None = Field(
        None, ge=1, description="transformer layers of its decoder, likewise"
    )
    split: str = Field("train", description="the queries' split")
    target: Target = Field(
        "query",
        exclude_if=equals("query"),
        description="what it learns to write: of a passage its query; or of a query (prompt {query}) its answer, a "
        "relevant passage's sentence, title, or text (GAR)",
    )
    target_length: int = Field(
        32, ge=2, description="tokens that it learns of a target, the last one included"
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

    source: Literal["endpoint"] = Field(description="where it is from")
    endpoint: Endpoint = Field(description="server that is asked")

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

    What is drawn follows from the seed, its passage's id and its number alone: more texts, shards and restarts leave a
    text as it is. So do other batches, but for the last bits of the model's arithmetic: in bf16 they may change a token
    where two are nearly as likely. A server draws by itself.
    """

    method: Method = Field(
        "top_k",
        description="greedy: the likeliest token; beam: a beam search's best; top_k, nucleus: drawn",
    )
    number: int = Field(5, ge=1, description="texts of a passage; of greedy 1")
    top_k: int = Field(10, ge=1, description="of top_k: the likeliest tokens that are drawn from")
    top_p: float = Field(
        0.95,
        gt=0,
        le=1,
        description="of nucleus: the probability of the tokens that are drawn from",
    )
    temperature: float = Field(1.0, gt=0, description="of top_k and nucleus: divides the logits")
    beams: int = Field(4, ge=2, description="of beam: how many are followed")
    tokens: int = Field(32, ge=1, description="of a text, at most")
    until: IfSet[str] = Field(
        "", max_length=8, description="ends a text, such as a line end; empty: its end token"
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


# of queries that are left out where a scorer is named and no share (Doc2Query--'s 70 % on MS MARCO)
DROP_SHARE = 0.7


class Appended(Section):
    """Which generated queries stand behind a passage."""

    from_: Annotated[str, Input()] = Field(alias="from", description="entry of `generations`")
    number: int = Field(
        5,
        ge=1,
        description="queries behind a passage, the first ones; at most the entry's `number`",
    )
    drop_by: Annotated[str | None, Input()] = Field(
        None,
        description="cross-encoder or dual encoder by whose scores queries are left out (Doc2Query--); null: none",
    )
    drop_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="of `drop_by`: share of all queries that is left out, the lowest; null: 0.7, as Doc2Query--",
    )


class Expanded(Appended, OfSearched):
    """The passages of a dataset, each with queries behind it that a generator wrote for it (doc2query)."""

    source: Literal["expanded"]


class GeneratedQueries(OfSearched):
    """Queries that a generator wrote as training queries, each with its passage as positive (InPars, Promptagator)."""

    always_has = ("train",)
    corpus_key = "of"
    source: Literal["generated_queries"]
    from_: Annotated[str, Input()] = Field(alias="from", description="entry of `generations`")
    number: int = Field(
        1, ge=1, description="queries of a passage, the first ones; at most the entry's `number`"
    )
    found_by: Annotated[str | None, Input()] = Field(
        None,
        description="run that must find a query's passage (round-trip consistency); null: all queries stay",
    )
    found_within: int = Field(1, ge=1, description="of `found_by`: the rank down to which")
    best: int | None = Field(None, ge=1, description="of these keep so many, the best; null: all")
    best_by: Annotated[str | None, Input()] = Field(
        None,
        description="cross-encoder or dual encoder that says what is best; null: tokens' mean log-likelihood",
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return nothing: its queries are not the dataset's."""
        return set()


class Expansion(Appended):
    """A run over passages with generated queries behind them, as a run over the passages: entry of `expansions`."""

    of: RunRef = Field(
        "bm25", description="the run over the expanded passages: BM25, uniCOIL, any other"
    )


class Generation(Decoding):
    """Texts of passages or queries by a generator, an entry of `generations`."""

    by: str = Field(description="the generator")
    of: Literal["passages", "queries"] = Field(
        "passages", description="what it reads; of queries those of the split that is searched"
    )
    passages: IfSet[int | None] = Field(
        None, ge=1, description="read so many passages alone, chosen by their ids' hash; null: all"
    )
    seed: int | None = Field(None, ge=0, description="of what is drawn; null: the configuration's")


class GeneratorParams(EncoderParams):
    """A published generator, copied and checked."""


class NewGeneratorParams(NewGenerator, Params):
    """A T5 of random weights with the vocabulary of the input `encoder`."""

    layers: int = Field(NEW_LAYERS, ge=1, description="transformer layers of its encoder")
    decoder_layers: int = Field(NEW_LAYERS, ge=1, description="transformer layers of its decoder")
    seed: int = Field(description="seed of the random weights")


class EncoderDecoderParams(Params):
    """An encoder with a decoder, which both begin with the layers of the input `encoder`."""

    layers: int | None = Field(
        None, ge=1, description="so many of its first layers encode; null: all"
    )
    decoder_layers: int | None = Field(
        None, ge=1, description="so many of its first layers decode; null: all"
    )
    seed: int = Field(description="seed of weights that the encoder does not have")


class TrainGeneratorParams(Params):
    """Training of a generator on a dataset's pairs of a passage and a query, or of a query and what answers it."""

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
        description="of sentences: how an answer is found in one",
    )
    length: int = Field(
        256, ge=8, description="tokens that it reads, the prompt's and special ones included"
    )
    target_length: int = Field(32, ge=2, description="tokens of a target, the last one included")
    split: str = Field("train", description="the queries' split")
    lora: Lora | None = Field(
        None, exclude_if=not_, description="learn low-rank adapters instead of all weights"
    )
    train: Seq2SeqTrain = Field(description="how it learns; the seed is set")


class AskedModel(LanguageModel):
    """A language model behind a server."""

    url: str = Field(description="of the server")


class GeneratedParams(Decoding, Params):
    """Texts of passages or queries by a generator, or by a language model behind a server."""

    side: Literal["passages", "queries"] = Field("passages", description="what is read")
    split: str | None = Field(None, exclude_if=not_, description="of queries: their split")
    passages: int | None = Field(
        None, exclude_if=not_, description="read so many passages alone, by their ids' hash"
    )
    prompt: Prompt = Field("{passage}", description="what the generator reads")
    length: int = Field(
        256, ge=8, description="tokens that it reads, the prompt's and special ones included"
    )
    seed: int = Field(description="of what is drawn")
    asked: AskedModel | None = Field(
        None, exclude_if=not_, description="the language model instead of `generator`"
    )


class ScoreGeneratedParams(Params):
    """Scores of generated texts, as queries, with their passages."""

    number: int = Field(1, ge=1, description="texts of a passage that are scored, the first ones")
    query_length: int = Field(ge=1, description="longest query, in tokens without special ones")
    passage_length: int = Field(ge=1, description="longest passage, likewise")
    precision: Precision = Field("auto", description="auto: bf16 where that is faster")
    batch_tokens: int = Field(4096, ge=64, description="tokens of a batch, padding included")


class ExpansionParams(RunParams):
    """A run over passages with generated queries behind them, as one over the passages."""
