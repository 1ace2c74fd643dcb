"""Variants of a configuration mean what the same values in the configuration mean, and share everything else."""

from pathlib import Path

import pytest
from messages import unknown_key

from tandem.config.loading import Variants, load_settings, split_path
from tandem.config.merging import merged
from tandem.errors import UserError

ROOT = Path(__file__).parents[2]
LR = "models.rocketqav2.train.lr"


@pytest.fixture
def variants(configured):
    return Variants(configured(), ROOT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 7),
        ("seed", "7"),
        ("models.rocketqav2.train.list_size", 16),
        (LR, "2e-5"),
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
        ("indexes.flat.rescore_factor", 3),
        ("recipes", ["dureader_retrieval", "rocketqav2", "margin_mse"]),
        ("recipes", ["dureader_retrieval", "rocketqav2", "cakd", "out_of_domain"]),
        ("execution.shards", 2),
    ],
)
def test_a_variant_is_the_configuration_with_that_value(variants, configured, path, value):
    over = value
    for key in reversed(path.split(".")):
        over = {key: over}
    assert variants.settings({path: value}) == load_settings(merged(configured(), over), ROOT)


def test_windows_follow_the_dataset_that_they_are_of(configured):
    documents = {"source": "beir", "path": "/x", "language": "en"}
    windows = {"source": "windows", "of": "documents", "length": 8, "stride": 4}
    config = configured() | {
        "datasets": {"documents": documents, "cut": windows, "left": windows | {"language": "en"}}
    }
    variant = Variants(config, ROOT).settings({"datasets.documents.language": "zh"})
    cut, left = (variant.datasets[name] for name in ("cut", "left"))
    assert (cut.language, cut.unit, left.language) == ("zh", "characters", "en")
    changed = config | {
        "datasets": config["datasets"] | {"documents": documents | {"language": "zh"}}
    }
    assert variant == load_settings(changed, ROOT)


def test_several_paths_at_once(variants, configured):
    config = configured(LR, 1e-3) | {"seed": 3}
    assert variants.settings({"seed": 3, LR: "1e-3"}) == load_settings(config, ROOT)


def test_a_base_model_changes_those_that_are_like_it(variants):
    models = variants.settings({LR: 0.5}).models
    assert models["rocketqav2_8_static"].train.lr == 0.5
    assert variants.base.models["rocketqav2_8_static"].train.lr != 0.5


def test_what_is_not_touched_is_shared(variants):
    settings = variants.settings({LR: 0.5})
    assert settings.models["de_bm25neg"] is variants.base.models["de_bm25neg"]
    assert settings.datasets["squad"] is variants.base.datasets["squad"]
    assert settings.rerank is variants.base.rerank
    assert settings is variants.settings({LR: 0.5})
    assert variants.base is variants.settings({})


def test_every_variant_has_datasets_of_its_own(variants):
    variants.settings({"seed": 1}).datasets["entered"] = variants.base.datasets["squad"]
    assert "entered" not in variants.settings({"seed": 2}).datasets
    assert "entered" not in variants.base.datasets


def test_models_that_inherit_a_mistake_are_named_where_only_they_have_it(configured):
    config = configured()
    config["models"]["rocketqav2"]["candidates"]["denoise"] = {"by": "ce_deneg"}
    config["models"]["heir"] = {"like": "rocketqav2", "candidates": {"denoise": {"hybrid": False}}}
    variants = Variants(config, ROOT)
    assert variants.settings({LR: 0.2}).models["heir"].train.lr == 0.2
    with pytest.raises(UserError, match="models.heir.candidates.denoise.by is missing"):
        # The base's denoising goes; what the heir says of it stays alone.
        variants.settings({"models.rocketqav2": {"candidates": {"denoise": None}}})


def test_names_with_dots(configured):
    config = configured()
    config["models"]["m.1"] = {"like": "de_bm25neg"}
    variants = Variants(config, ROOT)
    assert split_path("models.m.1.train.lr", variants.base) == ["models", "m.1", "train", "lr"]
    assert variants.value({"models.m.1.train.lr": "1e-3"}, "models.m.1.train.lr") == 0.001


def test_values_at_keys_that_are_words_of_python(variants):
    assert (
        variants.value(
            {"models.de_bm25neg.candidates.depth": "60"}, "models.de_bm25neg.candidates.from"
        )
        == "bm25"
    )


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("models.rocketqav2.trian.lr", 1, unknown_key("models.rocketqav2.trian", "train")),
        (
            "models.rocketqav3.train.lr",
            1,
            "models.rocketqav3.train.lr: models has no rocketqav3; did you mean rocket",
        ),
        (LR, "fast", 'models.rocketqav2.train.lr is "fast"; allowed: number'),
        (
            "models.rocketqav2.like",
            "nobody",
            "models.rocketqav2.like is nobody, which is not a model",
        ),
        ("sed", 1, unknown_key("sed", "seed")),
        ("seed.x", 1, 'seed is {"x": 1}; allowed: integer'),
        ("models", 3, "models is 3; allowed: mapping"),
        ("encoders.minilm.layers", "few", "encoders.minilm.layers"),
    ],
)
def test_mistakes_are_one_line_with_the_path(variants, path, value, line):
    with pytest.raises(UserError) as error:
        variants.settings({path: value})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
