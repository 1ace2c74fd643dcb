"""Variants of a configuration mean what the same values in the configuration mean, and share everything else."""

from pathlib import Path

import pytest

from tandem.config.loading import load_settings, merged
from tandem.config.variants import Variants
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stages

ROOT = Path(__file__).parents[2]


@pytest.fixture
def variants(configured):
    return Variants(configured(), ROOT, Stages())


def test_without_overrides_it_is_the_plans_own(configured):
    plan = FullPlan(configured(), ROOT)
    assert plan.variants.resolver({}) is plan.planner


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 7),
        ("seed", "7"),
        ("models.rocketqav2.train.list_size", 16),
        ("models.rocketqav2.train.lr", "2e-5"),
        ("models.rocketqav2.candidates.denoise", None),
        ("models.rocketqav2_8_static", None),
        ("models.de_bm25neg.shared", "false"),
        ("models.de_bm25neg", {"train": {"lr": 1}}),
        ("bm25.k1", 1),
        ("depth.train", 60),
        ("train_on", "squad"),
        ("datasets.pydocs.test_queries", 100),
        ("datasets.mine", {"source": "beir", "path": "/x"}),
        ("encoders.minilm.layers", 3),
        ("recipes", ["dureader_retrieval", "rocketqav2", "margin_mse"]),
        ("execution.shards", 2),
    ],
)
def test_a_variant_is_the_configuration_with_that_value(variants, configured, path, value):
    told = value
    for key in reversed(path.split(".")):
        told = {key: told}
    assert variants.resolver({path: value}).config == load_settings(merged(configured(), told), ROOT)


def test_several_paths_at_once(variants, configured):
    config = configured("models.rocketqav2.train.lr", 1e-3) | {"seed": 3}
    assert variants.resolver({"seed": 3, "models.rocketqav2.train.lr": "1e-3"}).config == load_settings(config, ROOT)


def test_a_base_model_changes_those_that_are_like_it(variants):
    config = variants.resolver({"models.rocketqav2.train.lr": 0.5}).config
    assert config["models"]["rocketqav2_8_static"]["train"]["lr"] == 0.5
    assert variants.resolver({}).config["models"]["rocketqav2_8_static"]["train"]["lr"] != 0.5


def test_what_heirs_inherit_is_checked_where_it_is_no_number(configured):
    config = configured()
    config["models"]["heir"] = {"like": "rocketqav2", "candidates": {"denoise": {"hybrid": False}}}
    variants = Variants(config, ROOT, Stages())
    variants.resolver({"models.rocketqav2.train.lr": 0.1})
    assert variants.resolver({"models.rocketqav2.train.lr": 0.2}).config["models"]["heir"]["train"]["lr"] == 0.2
    with pytest.raises(UserError, match="models.heir.candidates.denoise.by is missing"):
        # The base's denoising goes; what the heir says of it stays alone.
        Variants(config, ROOT, Stages()).resolver({"models.rocketqav2": {"candidates": {"denoise": None}}})


def test_names_with_dots(configured):
    config = configured()
    config["models"]["m.1"] = {"like": "de_bm25neg"}
    variants = Variants(config, ROOT, Stages())
    assert variants.keys("models.m.1.train.lr") == ["models", "m.1", "train", "lr"]
    assert variants.value({"models.m.1.train.lr": "1e-3"}, "models.m.1.train.lr") == 0.001


def test_equal_stages_are_one_and_touched_ones_are_new(variants):
    first, second = (variants.resolver(one) for one in ({}, {"models.rocketqav2.train.lr": 1e-6}))
    scores = [one.runs.score("rocketqav2.retriever", "here", "pydocs") for one in (first, second)]
    assert scores[0].digest != scores[1].digest
    assert len([s for s in variants.stages.values() if s.kind == "bm25"]) == 1
    models = sorted(s.name for s in variants.stages.values() if s.kind == "model")
    assert models == ["ce_bm25neg", "ce_deneg", "de_bm25neg", "rocketqav2", "rocketqav2"]
    assert variants.resolver({"models.rocketqav2.train.lr": 1e-6}) is second


def test_a_dataset_entered_for_one_variant_is_not_in_another(variants):
    entered = variants.resolver({"seed": 1}).variant("pydocs", "dissimilar")
    assert entered not in variants.resolver({"seed": 2}).config["datasets"]
    assert entered not in variants.resolver({}).config["datasets"]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("models.rocketqav2.trian.lr", 1, "models.rocketqav2.trian is not a known key; did you mean train?"),
        ("models.rocketqav3.train.lr", 1, "models.rocketqav3.train.lr: models has no rocketqav3; did you mean rocket"),
        ("models.rocketqav2.train.lr", "fast", 'models.rocketqav2.train.lr is "fast"; allowed: number'),
        ("models.rocketqav2.like", "nobody", "models.rocketqav2.like is nobody, which is no model"),
        ("sed", 1, "sed is not a known key; did you mean seed?"),
        ("seed.x", 1, 'seed is {"x": 1}; allowed: integer'),
        ("models", 3, "models is 3; allowed: object"),
        ("encoders.minilm.layers", "few", "encoders.minilm.layers"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_the_path(variants, path, value, line):
    with pytest.raises(UserError) as error:
        variants.resolver({path: value})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
