"""Representations that weigh terms, losses of terms, and the stages that store and search weights."""

from tandem.config.indexes import register_index
from tandem.config.losses import OwnLoss, register_own_loss
from tandem.config.representations import register_representation
from tandem.contrib.term_weights.options import (
    EXPANSION_TERMS,
    GatedTerms,
    SpadeTerms,
    SparseTerms,
    UniCoilTerms,
    WinnersTakeAll,
)
from tandem.contrib.term_weights.term_options import (
    FrequencyIndex,
    ImpactsParams,
    PrunedIndex,
    RetrieveTermsParams,
    SearchImpactsParams,
    SearchSeismicParams,
    SeismicIndex,
    SeismicParams,
    TermTradeoffsParams,
    TermWeightsParams,
)
from tandem.models.folders import FolderForm, register_folder_form
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

for representation in (SparseTerms, GatedTerms, UniCoilTerms, WinnersTakeAll, SpadeTerms):
    register_representation(representation)

register_own_loss(
    "term_recall",
    OwnLoss(
        "contrib.term_weights.term_objectives:TermRecall",
        "weights of tokens",
        UniCoilTerms(queries="tokens"),
        "the weights of passages' tokens alone; set representation: {type: unicoil, queries: tokens}",
    ),
)

register_own_loss(
    EXPANSION_TERMS,
    OwnLoss(
        "contrib.term_weights.term_objectives:ExpansionTerms",
        "which terms a passage's gate adds",
        GatedTerms(gate="learned"),
        "the gate of passages alone; set representation: {type: sparterm, gate: learned}",
    ),
)

register_folder_form(
    "sparse",
    FolderForm(
        describe="contrib.term_weights.sparse_folders:describe_sparse",
        adopt="contrib.term_weights.static_queries:adopt_static",
        find_parts="contrib.term_weights.sparse_folders:find_sparse_parts",
        values={"max_active_dims": int},
    ),
)

register_index(FrequencyIndex, PrunedIndex, SeismicIndex)

register_stage(
    Kind(
        "term_weights",
        "retrieval.encode:run",
        TermWeightsParams,
        env="models",
        threads="all",
        gpu=("model",),
        shard="retrieval.encode:run_shard",
        box="Encoding",
        holds="vectors",
        vectors="term",
        verb="encoding",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "retrieve_sparse",
        "contrib.term_weights.term_search:run",
        RetrieveTermsParams,
        env="search",
        threads="all",
        shard="contrib.term_weights.term_search:run_shard",
        box="Retrieval",
        scoring=Scoring(by="dual", zero="always"),
        verb="searching",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "impacts",
        "contrib.term_weights.term_indexes:run_impacts",
        ImpactsParams,
        env="lexical",
        threads="all",
        box="Encoding",
        holds="index",
        verb="indexing",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "search_impacts",
        "contrib.term_weights.term_indexes:run_search_impacts",
        SearchImpactsParams,
        env="lexical",
        threads="all",
        box="Retrieval",
        scoring=Scoring(zero="always"),
        verb="searching",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "seismic",
        "contrib.term_weights.term_indexes:run_seismic",
        SeismicParams,
        env="search",
        threads="all",
        box="Encoding",
        holds="index",
        package="pyseismic-lsr",
        verb="indexing",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "search_seismic",
        "contrib.term_weights.term_indexes:run_search_seismic",
        SearchSeismicParams,
        env="search",
        threads="all",
        box="Retrieval",
        package="pyseismic-lsr",
        scoring=Scoring(zero="always"),
        verb="searching",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "term_tradeoffs",
        "contrib.term_weights.term_tradeoffs:run",
        TermTradeoffsParams,
        env="lexical",
        threads="exclusive",
        box="Retrieval",
        verb="measuring",
    ),
    in_runs=False,
)
