"""Classical scores of a variant of `sparse`, in BM25's place: a model per type."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from tandem.config.base import Section, by_value, problem


class Dirichlet(Section):
    """Query likelihood, smoothed by Dirichlet's prior (Zhai and Lafferty 2001)."""

    type: Literal["dirichlet"]
    mu: float = Field(1000.0, gt=0, description="weight of the collection, in terms of a passage")


class JelinekMercer(Section):
    """Query likelihood, smoothed by linear interpolation with the collection (Jelinek and Mercer 1980)."""

    type: Literal["jelinek_mercer"]
    collection_weight: float = Field(
        0.1, gt=0, lt=1, description="λ: 0.1 suits short queries, 0.7 long ones"
    )


class Dfr(Section):
    """Divergence from randomness (Amati and van Rijsbergen 2002)."""

    type: Literal["dfr"]
    basic_model: Literal["G", "IF", "In", "Ine"] = Field(
        "In", description="of randomness, as Lucene names them"
    )
    after_effect: Literal["B", "L"] = Field("L", description="B: Bernoulli's, L: Laplace's")
    normalization: Literal["H1", "H2", "H3", "Z"] = Field(
        "H2", description="of a term's frequency by length"
    )


class Boolean(Section):
    """One point for every term that query and passage share; a term counts as often as the query has it."""

    type: Literal["boolean"]


class TfIdf(Section):
    """The cosine of TF-IDF vectors (Salton, Wong and Yang 1975)."""

    type: Literal["tf_idf"]
    sublinear: bool = Field(False, description="1 + ln(frequency) for a term's frequency")


class Lsi(TfIdf):
    """Latent semantic indexing: the cosine of TF-IDF vectors in few dimensions (Deerwester et al. 1990)."""

    type: Literal["lsi"]  # type: ignore[assignment]
    dimensions: int = Field(
        200, ge=1, description="singular values that are kept; fewer than passages and terms"
    )


LuceneSimilarity = Dirichlet | JelinekMercer | Dfr | Boolean
VectorSimilarity = TfIdf | Lsi  # of the engine bm25s
AnySimilarity = LuceneSimilarity | VectorSimilarity
SIMILARITIES: dict[str, type[AnySimilarity]] = by_value("type", *get_args(AnySimilarity))


def _known_type(value: Any) -> Any:
    name = value.get("type") if isinstance(value, dict) else None
    if isinstance(name, str) and name not in SIMILARITIES:
        raise problem(f".type is {name}; allowed: {', '.join(SIMILARITIES)}")
    return value


Similarity = Annotated[
    AnySimilarity, BeforeValidator(_known_type, json_schema_input_type=AnySimilarity)
]
