"""Sparse encoders in the graph: config/small/splade.yaml, exact search, Lucene, and what does not fit."""

from pathlib import Path

import pytest
import yaml

from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def splade(configured):
    """The default with `config/small/splade.yaml` over it, as `--configfile` merges them."""
    own = yaml.safe_load((ROOT / "config/small/splade.yaml").read_text())
    config = configured()
    models = config["models"] | own["models"]
    return config | own | {"models": models, "seed": 42}


def plan(config):
    return {(stage.kind, stage.name): stage for stage in FullPlan(config, ROOT).stages.values()}


def test_a_sparse_encoder_starts_from_a_head_and_is_searched_exactly_and_in_lucene(splade):
    stages = plan(splade)
    model = stages["model", "splade"]
    assert model.values["representation"]["type"] == "sparse"
    assert [model.values[key] for key in ("pooling", "normalize", "temperature")] == ["max", False, 1.0]
    assert model.upstream["start"].kind == "pretrain"
    exact = stages["retrieve_sparse", "splade.test"]
    assert exact.upstream["passages"].upstream["model"] is model
    assert exact.upstream["passages"].values["dtype"] == "fp16"
    assert stages["search_impacts", "splade@lucene.test"].upstream["passages"] is exact.upstream["passages"]
    assert stages["model", "splade_doc"].values["representation"]["queries"] == "tokens"
    assert ("embeddings", "splade.passages") not in stages


def test_another_index_is_refused(splade):
    with pytest.raises(UserError, match=r"splade gives weights to terms, and hnsw is an index of vectors; allowed: "):
        plan(splade | {"systems": ["splade@hnsw"]})


def test_options_are_checked(splade):
    splade["models"]["splade"]["representation"] = {"type": "sparse", "pooling": "mean"}
    with pytest.raises(UserError, match=r"models.splade.representation.*pooling.*mean"):
        plan(splade)
