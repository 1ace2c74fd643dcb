"""Sparse encoders in the graph: config/small/splade.yaml, exact search, Lucene, and what does not fit."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tandem.contrib.term_weights.term_options import TermIndex
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]


@pytest.fixture
def splade(configured):
    """The default with `config/small/splade.yaml` over it, as `--configfile` merges them."""
    own = yaml.safe_load((ROOT / "config/small/splade.yaml").read_text())
    config = configured()
    models = config["models"] | own["models"]
    return config | own | {"models": models, "seed": 42}


def plan(config):
    return {(stage.kind, stage.name): stage for stage in Plan(config, ROOT).stages.values()}


def test_a_sparse_encoder_starts_from_a_head_and_is_searched_exactly_and_in_lucene(splade):
    stages = plan(splade)
    model = stages["model", "splade"]
    assert model.values["representation"]["type"] == "sparse"
    assert [model.values[key] for key in ("pooling", "normalize", "temperature")] == [
        "max",
        False,
        1.0,
    ]
    assert model.upstream["start"].kind == "pretrain"
    exact = stages["retrieve_sparse", "splade.test"]
    assert exact.upstream["passages"].upstream["model"] is model
    assert exact.upstream["passages"].values["dtype"] == "fp16"
    assert (
        stages["search_impacts", "splade@lucene.test"].upstream["passages"]
        is exact.upstream["passages"]
    )
    assert stages["model", "splade_doc"].values["representation"]["queries"] == "tokens"
    assert ("embeddings", "splade.passages") not in stages


def test_another_index_is_refused(splade):
    with pytest.raises(
        UserError,
        match=r"splade gives weights to terms, and hnsw is an index of vectors; allowed: ",
    ):
        plan(splade | {"systems": ["splade@hnsw"]})


def test_seismic_is_searched_and_compared(splade):
    tradeoffs = {"model": "splade", "indexes": ["seismic"], "split": "test"}
    config = splade | {"systems": ["splade", "splade@seismic"], "tradeoffs": tradeoffs}
    stages = plan(config)
    run, exact = (
        stages["search_seismic", "splade@seismic.test"],
        stages["retrieve_sparse", "splade.test"],
    )
    assert (run.values["query_cut"], run.values["heap_factor"]) == (10, 0.8)
    assert run.upstream["index"].values["postings"] == 3500
    assert run.upstream["passages"] is exact.upstream["passages"]
    compared = Plan(config, ROOT).view("tradeoffs").stage()
    assert compared.values["seismic"] == [{"name": "seismic", "query_cut": 10, "heap_factor": 0.8}]
    assert compared.upstream["seismic.0"].digest == run.upstream["index"].digest


@pytest.mark.skipif(find_spec("seismic") is not None, reason="the package is installed")
@pytest.mark.parametrize("target", ["all", "published", "index_tradeoffs"])
def test_a_missing_package_is_a_line_before_anything_runs(splade, target):
    tradeoffs = {"model": "splade", "indexes": ["seismic"], "split": "test"}
    config = splade | {"systems": ["splade@seismic"], "tradeoffs": tradeoffs}
    plan = Plan(config, ROOT)
    with pytest.raises(
        UserError, match=r"seismic: the package pyseismic-lsr is not installed; pip install pyseis"
    ):
        plan.check(target)
    plan.check("baseline")  # whose rows do not need it


def test_an_index_that_does_not_exist_or_is_not_compared_is_named(splade):
    with pytest.raises(
        UserError, match=r"splade@seismik: seismik is not an index; did you mean seismic"
    ):
        plan(splade | {"systems": ["splade@seismik"]})
    with pytest.raises(
        UserError, match=r"tradeoffs.indexes: seismik is not an index; did you mean seismic"
    ):
        Plan(splade | {"tradeoffs": {"model": "splade", "indexes": ["seismik"]}}, ROOT).view(
            "tradeoffs"
        ).stage()
    with pytest.raises(
        UserError, match=r"tradeoffs.indexes: bm25 ranks by other weights .*; leave it out"
    ):
        Plan(splade | {"tradeoffs": {"model": "splade", "indexes": ["bm25"]}}, ROOT).view(
            "tradeoffs"
        ).stage()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"indexes": ["seismic", "hnsw"]},
            "tradeoffs.indexes: splade gives weights to terms, and hnsw is an index of vectors; "
            "allowed: seismic",
        ),
        (
            {"sweep": {"nprobe": [8]}},
            "tradeoffs.sweep.nprobe is set, but splade gives weights to terms, whose searches have "
            "no such parameter; leave it out",
        ),
    ],
)
def test_what_only_searches_of_vectors_have_is_refused_where_terms_are_compared(splade, keys, line):
    view = Plan(splade | {"tradeoffs": {"model": "splade"} | keys}, ROOT).view("tradeoffs")
    with pytest.raises(UserError) as error:
        view.stage()
    assert str(error.value) == line


def test_the_default_indexes_are_passed_over_where_terms_are_compared(splade):
    stage = Plan(splade | {"tradeoffs": {"model": "splade"}}, ROOT).view("tradeoffs").stage()
    assert stage.params.seismic == ()


def test_queries_of_fixed_weights_are_not_regularised(splade):
    """As SPLADE-doc, `like` SPLADE: flops of its queries would be the same number at every step."""
    doc = splade["models"]["splade_doc"]
    assert doc["train"]["regularise"] == {"query": None}
    doc["train"] = {}
    with pytest.raises(
        UserError,
        match=r"models.splade_doc.train.regularise.query is set, but the representation sparse",
    ):
        plan(splade)


def deepct(**options):
    representation = {"type": "unicoil", "queries": "tokens"}
    train = {"loss": "term_recall"}
    return {
        "objective": "dual",
        "representation": representation,
        "candidates": {"from": "bm25"},
        "train": train,
    } | options


def test_deepct_is_searched_as_the_frequencies_of_bm25(splade):
    splade["models"]["deepct"] = deepct()
    stages = plan(splade | {"systems": ["splade", "deepct@bm25"]})
    run = stages["retrieve_sparse", "deepct@bm25.test"]
    assert run.values["index"] == {"type": "bm25", "scale": 100.0, "k1": 10.0, "b": 0.9}
    assert run.upstream["passages"].upstream["model"].values["train"]["loss"] == "term_recall"
    assert "index" not in stages["retrieve_sparse", "splade.test"].values


@pytest.mark.parametrize("representation", ["sparterm", "uhd", "spade"])
def test_weights_of_other_models_are_searched_in_the_same_ways(splade, representation):
    splade["models"]["other"] = splade["models"]["splade"] | {
        "representation": representation,
        "train": {},
    }
    stages = plan(splade | {"systems": ["other", "other@lucene", "other@seismic"]})
    assert stages["retrieve_sparse", "other.test"].upstream["passages"].kind == "term_weights"
    for kind, index in (("search_impacts", "lucene"), ("search_seismic", "seismic")):
        assert (
            stages[kind, f"other@{index}.test"].upstream["passages"].upstream["model"].name
            == "other"
        )


def gated(**train):
    """A model with a learned gate."""
    return {
        "objective": "dual",
        "representation": {"type": "sparterm", "gate": "learned"},
        "candidates": {"from": "bm25"},
        "train": train,
    }


def test_a_learned_gate_is_learned_before_the_weights(splade):
    start = {"init": splade["models"]["splade"]["init"]}
    splade["models"]["gate"] = gated(loss="expansion_terms") | start
    splade["models"]["terms"] = gated() | {"init": "gate"}
    stages = plan(splade | {"systems": ["terms"]})
    model = stages["retrieve_sparse", "terms.test"].upstream["passages"].upstream["model"]
    assert model.upstream["start"].values["train"]["loss"] == "expansion_terms"
    splade["models"]["terms"] |= start
    with pytest.raises(UserError, match=r"models.terms.init is .*learned first.*expansion_terms"):
        plan(splade | {"systems": ["terms"]})


def test_the_loss_of_a_gate_needs_one(splade):
    splade["models"]["gate"] = gated(loss="expansion_terms") | {"representation": "sparterm"}
    with pytest.raises(
        UserError, match=r"models.gate.train.loss is expansion_terms.*gate: learned"
    ):
        plan(splade | {"systems": ["gate"]})


def test_only_spade_is_co_trained(splade):
    splade["models"]["splade"]["train"]["co_training"] = 0.3
    with pytest.raises(
        UserError, match=r"models.splade.train.co_training is set, but the representation sparse"
    ):
        plan(splade)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"representation": "unicoil"},
            r"models.deepct.train.loss is term_recall, .*\{type: unicoil, queries: tokens\}",
        ),
        (
            {"train": {"loss": "term_recall", "passage_centric": 0.1}},
            r"train.passage_centric is set, but loss is term_",
        ),
    ],
)
def test_term_recall_is_of_tokens(splade, options, error):
    splade["models"]["deepct"] = deepct(**options)
    with pytest.raises(UserError, match=error):
        plan(splade)


def test_terms_of_most_passages_may_count_for_nothing(splade):
    indexes = {"rare": {"type": "pruned", "above": 0.1}}
    stages = plan(splade | {"indexes": indexes, "systems": ["splade@pruned", "splade@rare"]})
    for name, above in (("pruned", 0.7), ("rare", 0.1)):
        assert stages["retrieve_sparse", f"splade@{name}.test"].values["index"] == {
            "type": "pruned",
            "above": above,
        }


def test_vectors_have_no_frequencies(splade):
    with pytest.raises(
        UserError,
        match=r"bm25 searches weights of terms, not vectors; name an index of another type",
    ):
        plan(splade | {"systems": ["de_bm25neg@bm25"]})


def test_options_are_checked(splade):
    splade["models"]["splade"]["representation"] = {"type": "sparse", "pooling": "mean"}
    with pytest.raises(UserError, match=r"models.splade.representation.*pooling.*mean"):
        plan(splade)


def test_every_type_of_index_has_an_entry_of_its_name(splade):
    entries = Plan(splade, ROOT).planner.ctx.settings.indexes
    own = {name: entry.type for name, entry in entries.items() if isinstance(entry, TermIndex)}
    assert own == {"bm25": "bm25", "pruned": "pruned", "seismic": "seismic"}
