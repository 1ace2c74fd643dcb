"""Options of representations with several vectors per text, and parameters of the stages that store and search them."""

import math
from operator import not_
from typing import ClassVar, Literal

from pydantic import Field

from tandem.config.base import IfSet, Section
from tandem.config.representations import Representation, Unpooled
from tandem.errors import UserError
from tandem.stages.retrieval import EmbeddingsParams, RunParams

METADATA = "artifact.metadata"  # in the folder of a checkpoint of Stanford's ColBERT
ID_NUMBERS = 2  # numbers after a row's vector that hold a token's id: see `same_token.join_digits`


class Markers(Section):
    """Tokens that mark queries and passages for an encoder: ColBERT's [Q] and [D]."""

    query: str | None = Field(
        None,
        pattern=r"^\S+$",
        description="in front of queries: an entry of the vocabulary, else a new one; null: none",
    )
    passage: str | None = Field(
        None, pattern=r"^\S+$", description="likewise for passages, in front of the title"
    )


class TokenRows(Representation):
    """A representation that stores vectors of tokens, one row for each token."""

    scores_pairs: ClassVar[bool] = True
    encoding: ClassVar[str] = "token_vectors"

    def choose_dtype(self, vectors: str, queries: str) -> str:
        """Return fp16; int8 is only for one vector per text, whose numbers share a scale."""
        return "fp16"


class Multi(TokenRows):
    """A vector for each token; each token of a query is matched with its nearest token of a passage (ColBERT)."""

    type: Literal["multi"] = Field("multi", description="which representation it is")
    dim: int | None = Field(
        128,
        ge=1,
        description="numbers in a token's vector, from a new linear layer; null: no layer",
    )
    query_tokens: int | None = Field(
        32,
        ge=3,
        description="tokens of a query, filled up with [MASK], special ones included; null: its own",
    )
    attend: bool = Field(
        False, description="the encoder attends to the [MASK] tokens that fill up a query"
    )
    skip_punctuation: bool = Field(True, description="punctuation of passages has no vectors")
    markers: IfSet[Markers | None] = Field(
        None,
        description="tokens in front of queries and of passages, part of `lengths`; null: none",
    )
    query_vectors: IfSet[int | None] = Field(
        None, ge=1, description="only the first so many vectors of a query; null: all"
    )
    passage_vectors: IfSet[int | None] = Field(
        None, ge=1, description="only the first so many vectors of a passage (ME-BERT); null: all"
    )

    usual: ClassVar[dict[str, object]] = {"pooling": "cls", "normalize": True, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = (*Representation.unused, "pooling", "train.regularise")

    @property
    def side_markers(self) -> dict[str, str]:
        """Return the token in front of texts by side; a side without such a token is left out."""
        tokens = self.markers.model_dump() if self.markers else {}
        return {side: token for side, token in tokens.items() if token}

    def check_positions(self, at: str, positions: int) -> None:
        """See `Representation.check_positions`."""
        if self.query_tokens and self.query_tokens > positions:
            problem = f"is {self.query_tokens}, but the encoder takes {positions}"
            raise UserError(f"{at}.representation.query_tokens {problem}; allowed: ≤ {positions}")

    def first(self, side: str) -> int | None:
        """Return how many of a text's vectors there are at most; None: a vector for every token."""
        return self.query_vectors if side == "query" else self.passage_vectors

    @property
    def row_size(self) -> int | None:
        """See `Representation.row_size`."""
        return self.dim

    def count_rows(self, side: str, tokens: float) -> float:
        """Return how many vectors a text of `tokens` tokens, special ones included, has at most."""
        filled = self.query_tokens if side == "query" else None
        return min(filled or tokens, self.first(side) or math.inf)


class CoilVectors(Unpooled, TokenRows):
    """A vector for each token, compared only with those of the same token, and one for the whole text (COIL)."""

    type: Literal["coil"] = Field("coil", description="which representation it is")
    dim: int = Field(32, ge=1, description="numbers in a token's vector, from a new linear layer")
    cls_dim: int | None = Field(
        768,
        ge=1,
        description="numbers in the whole text's vector, from its first token; null: none",
    )

    unused: ClassVar[tuple[str, ...]] = (*Unpooled.unused, "train.regularise")
    matches_tokens: ClassVar[bool] = True

    @property
    def pieces(self) -> int:
        """Return how many rows of `dim` numbers hold the vector of the whole text."""
        return -(-(self.cls_dim or 0) // self.dim)

    @property
    def row_size(self) -> int:
        """Return how many numbers a row has: its vector and the id of its token."""
        return self.dim + ID_NUMBERS

    def count_rows(self, side: str, tokens: float) -> float:
        """Return how many rows a text of `tokens` tokens has at most, on either side."""
        return tokens + self.pieces


class PolyCodes(Unpooled):
    """A vector for a passage, which weighs a query's vectors, one per learned code; it scores pairs only."""

    type: Literal["poly"] = Field("poly", description="which representation it is")
    codes: int = Field(64, ge=1, description="vectors of a query")

    scores_pairs: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = CoilVectors.unused


class TokenVectorsParams(EmbeddingsParams):
    """Vectors of passages' or queries' tokens for late interaction, one row for each token."""


class MaxSimParams(RunParams):
    """Late interaction over all passages, or over those for which an index finds tokens near the query's."""

    nprobe: int | None = Field(
        None, ge=1, description="lists that are searched; null: FAISS's default"
    )
    ef_search: int | None = Field(
        None, ge=1, description="candidates in a graph; null: FAISS's default"
    )
    rescore: bool = Field(
        True, description="score by the stored vectors; false: by those that the index decodes"
    )
    rescore_factor: int = Field(
        2,
        ge=1,
        description="times the depth: tokens found for each token of a query, and passages scored",
    )
    same_token: bool = Field(
        False,
        exclude_if=not_,
        description="a query's token is compared only with equal tokens of a passage (COIL)",
    )
