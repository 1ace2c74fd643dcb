"""The options of representations that weigh terms: entries of the vocabulary, a text's tokens, or new dimensions."""

from typing import ClassVar, Literal

from pydantic import Field

from tandem.config.base import Count, Distinct, IfSet, equals
from tandem.config.representations import Unpooled

EXPANSION_TERMS = "expansion_terms"  # the loss of a learned gate


class Terms(Unpooled):
    """A representation whose texts have weights of terms."""

    encoding: ClassVar[str] = "term_weights"

    def choose_dtype(self, vectors: str, queries: str) -> str:
        """Return the type of queries' weights: `queries`, never int8, since weights have no scale."""
        return queries

    def list_unused(self) -> tuple[str, ...]:
        """Return the keys that its class does not use; with fixed weights of queries, also the queries' regulariser."""
        is_fixed = getattr(self, "queries", "encoded") == "tokens"
        return (*self.unused, "train.regularise.query") if is_fixed else self.unused

    def active_terms(self, tokens: float) -> float | None:
        """Return how many weights a text of this many tokens has at most; None: training decides the number."""
        return None


class SparseTerms(Terms):
    """A weight for each entry of the vocabulary, mostly 0, from a head that predicts tokens (SPLADE)."""

    type: Literal["sparse"] = Field("sparse", description="which representation it is")
    pooling: Literal["max", "sum"] = Field(
        "max", description="over a text's tokens; sum: as in the first SPLADE"
    )
    activation: Literal["relu", "log1p_relu"] = Field(
        "relu", description="of a logit; log1p_relu: the logarithm is applied twice"
    )
    queries: Literal["encoded", "tokens"] = Field(
        "encoded", description="tokens: 1 for each of its tokens, no model"
    )
    top: int | None = Field(
        None, ge=1, description="only so many of a text's weights, the largest; null: all"
    )

    def head(self, vocabulary: int) -> int:
        """Return a number for each entry of the vocabulary."""
        return vocabulary


class GatedTerms(Terms):
    """Weights of the terms that a gate lets through, from a head that predicts tokens (SparTerm)."""

    type: Literal["sparterm"] = Field("sparterm", description="which representation it is")
    gate: Literal["words", "learned"] = Field(
        "words",
        exclude_if=equals("words"),
        description="words: a text's own terms; learned: for passages, also terms that a second encoder adds, which "
        "was trained by train.loss: expansion_terms",
    )
    queries: Literal["encoded", "tokens"] = Field(
        "encoded", description="tokens: 1 for each of its tokens, no model"
    )
    top: int | None = Field(
        None, ge=1, description="only so many of a text's weights, the largest; null: all"
    )

    pooling: ClassVar[str] = "sum"
    activation: ClassVar[str] = "none"

    def head(self, vocabulary: int) -> int:
        """Return a number for each entry of the vocabulary and each encoder."""
        return vocabulary * self.count_encoders()

    def active_terms(self, tokens: float) -> float | None:
        """Return the number of tokens, as if all were different; None with a learned gate: training decides."""
        return None if self.gate == "learned" else tokens

    def count_encoders(self) -> int:
        """Return 2 if a learned gate reads passages, too, else 1."""
        return 2 if self.gate == "learned" else 1

    @property
    def learned_first(self) -> str | None:
        """Return the loss that trains a learned gate, before anything else is trained."""
        return EXPANSION_TERMS if self.gate == "learned" else None


class UniCoilTerms(Terms):
    """A weight for each token of a text, from a linear layer on the token's state (uniCOIL without expansion)."""

    type: Literal["unicoil"] = Field("unicoil", description="which representation it is")
    queries: Literal["encoded", "tokens"] = Field(
        "encoded",
        exclude_if=equals("encoded"),
        description="tokens: 1 for each of its tokens, no model",
    )


class WinnersTakeAll(Terms):
    """Weights of very many dimensions, from new linear layers; a token keeps only its largest ones (UHD-BERT)."""

    type: Literal["uhd"] = Field("uhd", description="which representation it is")
    width: int = Field(81920, ge=1, description="how many dimensions a bucket has")
    winners: int = Field(
        80,
        ge=1,
        description="dimensions of a bucket that a token keeps: its largest numbers, above 0",
    )
    layers: IfSet[Distinct[Count] | None] = Field(
        None,
        description="of the encoder, from 1; each fills a bucket of its own; null: only the last layer",
    )
    binary: bool = Field(True, description="all weights of a text are 1, except in training")

    def head(self, vocabulary: int) -> int:
        """Return a number for each dimension."""
        return self.width * self.buckets

    def active_terms(self, tokens: float) -> float:
        """Return the number of winners of all tokens, as if all were different."""
        return min(self.width, self.winners * tokens) * self.buckets

    @property
    def buckets(self) -> int:
        """Return how many layers of the encoder have dimensions of their own."""
        return len(self.layers or (0,))


class SpadeTerms(Terms):
    """Weights of a passage's own tokens, and of terms that a second encoder adds to them (SpaDE)."""

    type: Literal["spade"] = Field("spade", description="which representation it is")
    queries: Literal["tokens"] = Field(
        "tokens", description="1 for each of a query's tokens, no model"
    )
    terms: int = Field(
        2, ge=1, description="entries of the vocabulary that each token of a passage adds"
    )
    share: float = Field(
        0.3,
        ge=0,
        le=1,
        description="of the expansion in a weight; the rest: the passage's own tokens",
    )

    unused: ClassVar[tuple[str, ...]] = (
        *(key for key in Unpooled.unused if key != "train.co_training"),
        "train.self_teaching",
    )

    def count_encoders(self) -> int:
        """Return 2: one encoder weighs a passage's tokens, the other adds terms."""
        return 2

    def head(self, vocabulary: int) -> int:
        """Return a number for each entry of the vocabulary."""
        return vocabulary
