"""Files, recipes, catalogues and the command line become one typed configuration."""

from pathlib import Path

import pytest
import yaml

from tandem.config import merging
from tandem.config.datasets import CutDocuments
from tandem.config.indexes import INDEXES
from tandem.config.loading import load_settings
from tandem.config.merging import LOADER, assembled, catalogue, gathered, merged
from tandem.config.models import JointModel, Validation, ValidationSettings
from tandem.errors import UserError

ROOT = Path(__file__).parents[2]


def test_text_from_the_command_line_is_typed(configured):
    config = configured(
        "models.rocketqav2.train", {"lr": "1e-5", "steps": "20", "in_batch": "true", "clip": "null"}
    )
    config["models"]["rocketqav2"]["candidates"]["denoise"] = "null"
    config["bm25"] = {"analyzer": "null"}
    settings = load_settings(config, ROOT)
    model = settings.models["rocketqav2"]
    assert isinstance(model, JointModel)
    assert (model.train.lr, model.train.steps, model.train.in_batch, model.train.clip) == (
        1e-5,
        20,
        True,
        None,
    )
    assert (type(model.train.lr), type(model.train.steps)) == (float, int)
    assert model.candidates.denoise is None
    assert settings.bm25.analyzer is None


@pytest.mark.parametrize(("text", "shared"), [("False", False), ("TRUE", True), ("Null", None)])
def test_a_word_of_the_command_line_is_what_it_is_in_yaml(configured, text, shared):
    assert yaml.load(text, LOADER) is shared
    settings = load_settings(configured("models.de_bm25neg.shared", text), ROOT)
    assert settings.models["de_bm25neg"].shared is shared


def test_text_stays_text_where_text_is_allowed(configured):
    assert load_settings(configured("systems", ["true", "1"]), ROOT).systems == ("true", "1")
    assert load_settings(configured("train_on", "false"), ROOT).train_on == "false"


def test_an_integer_for_a_number_is_the_same_number(configured):
    value = load_settings(configured("bm25.k1", 1), ROOT).bm25.k1
    assert isinstance(value, float)
    assert value == 1.0


def test_defaults_have_the_types_of_their_keys(configured):
    execution = load_settings(configured(), ROOT).execution
    assert isinstance(execution.stop_seconds, float)


def test_like_takes_over_the_keys_of_another_model(configured):
    models = load_settings(configured(), ROOT).models
    full, static = models["rocketqav2_8"], models["rocketqav2_8_static"]
    assert static.train == full.train.model_copy(update={"teacher": "static"})
    assert static.candidates == full.candidates
    assert models["rocketqav2_8_nodenoise"].candidates.denoise is None


def test_null_leaves_a_model_of_a_recipe_out(configured):
    assert (
        "rocketqav2_8_static"
        not in load_settings(configured("models.rocketqav2_8_static", None), ROOT).models
    )


def test_one_name_is_a_list_of_one(configured):
    settings = load_settings(
        configured("models.rocketqav2.candidates.denoise.by", "ce_deneg"), ROOT
    )
    denoise = settings.models["rocketqav2"].candidates.denoise
    assert denoise is not None
    assert denoise.by == ("ce_deneg",)


def test_an_entry_of_a_catalogue_is_changed_by_its_keys_and_replaced_by_its_source(configured):
    changed = load_settings(configured("datasets.squad", {"test_queries": 5}), ROOT).datasets[
        "squad"
    ]
    assert (changed.source, changed.test_queries) == ("squad", 5)
    replaced = load_settings(configured("datasets.squad", {"source": "beir"}), ROOT).datasets[
        "squad"
    ]
    assert replaced.model_dump(exclude_unset=True) == {"source": "beir"}


def test_windows_take_over_what_their_documents_have(configured):
    chinese = {"source": "beir", "language": "zh", "measures": ["RR@10"]}
    config = configured(
        "datasets",
        {"long": chinese, "windows": {"source": "windows", "of": "long", "language": None}},
    )
    config["datasets"]["inner"] = {"source": "windows", "of": "windows", "language": "en"}
    datasets = load_settings(config, ROOT).datasets
    windows, inner = datasets["windows"], datasets["inner"]
    assert isinstance(windows, CutDocuments)
    assert isinstance(inner, CutDocuments)
    assert (windows.language, windows.unit, windows.measures) == ("zh", "characters", None)
    assert (inner.language, inner.unit) == ("en", "words")


def test_an_entry_of_another_source_replaces_a_recipes_one(configured):
    def load(entry):
        config = configured("encoders", {"contriever_pretrained": entry})
        config["recipes"] = [*config["recipes"], "contriever"]
        return load_settings(config, ROOT).encoders["contriever_pretrained"]

    own = {"source": "folder", "path": "models/contriever"}
    assert load(own).model_dump(exclude_unset=True) == own
    # of the recipe's source, it changes a key
    for changed in ({"source": "pretrain", "normalize": True}, {"normalize": True}):
        encoder = load(changed)
        assert (encoder.objective, encoder.normalize) == ("moco", True)


@pytest.mark.parametrize(
    "keys",
    [
        {"source": "perturbed"},
        {"source": "unlabelled", "share": 0.5},
        {"source": "domains", "only": ["law"]},
        {"source": "dissimilar"},
        {"source": "reduced"},
    ],
)
def test_what_is_made_of_a_dataset_takes_over_how_it_is_searched_and_scored(configured, keys):
    german = {"source": "beir", "language": "de", "ignore_identical_ids": True}
    config = configured("datasets", {"base": german, "made": {"of": "base", **keys}})
    config["datasets"]["own"] = {"of": "base", "ignore_identical_ids": False, **keys}
    datasets = load_settings(config, ROOT).datasets
    made, own = datasets["made"], datasets["own"]
    assert (made.language, made.ignore_identical_ids) == ("de", True)
    assert (own.language, own.ignore_identical_ids) == ("de", False)


def test_a_reduced_dataset_has_its_own_measures_and_reports_dev(configured):
    base = {"source": "beir", "score_split": "test", "measures": ["AP"]}
    config = configured("datasets", {"base": base, "made": {"source": "reduced", "of": "base"}})
    made = load_settings(config, ROOT).datasets["made"]
    assert (made.score_split, made.measures) == (None, None)


def test_classes_follow_from_the_keys_that_choose_them(configured):
    config = configured("datasets.mine", {"source": "windows", "of": "pydocs"})
    config["indexes"] = {"mine": {"type": "pruned"}}
    settings = load_settings(config, ROOT)
    assert isinstance(settings.datasets["mine"], CutDocuments)
    assert isinstance(settings.indexes["mine"], INDEXES["pruned"])


def test_a_models_own_validation_overrides_the_keys_that_it_sets():
    usual, own = (
        ValidationSettings(depth=7, queries=3),
        Validation(queries=None, method="average_rank"),
    )
    merged_settings = usual.overridden(own)
    assert (merged_settings.depth, merged_settings.queries, merged_settings.method) == (
        7,
        None,
        "average_rank",
    )


def test_merging_shares_nothing():
    under, over = {"a": {"b": [1]}, "c": 1}, {"a": {"d": [2]}, 3: {4: 5}}
    result = merged(under, over)
    assert result == {"a": {"b": [1], "d": [2]}, "c": 1, "3": {"4": 5}}
    result["a"]["b"].append(2)
    result["a"]["d"].append(3)
    assert (under["a"]["b"], over["a"]["d"]) == ([1], [2])


def test_files_are_merged_in_order(tmp_path):
    (tmp_path / "a.yaml").write_text("{seed: 1, rerank: {depth: 3}}")
    (tmp_path / "b.yaml").write_text("{seed: 2}")
    config = gathered([tmp_path / "a.yaml", tmp_path / "b.yaml"], ROOT)
    assert (config["seed"], config["rerank"], config["dataset"]) == (2, {"depth": 3}, "pydocs")


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"a": "{b: {}}"}, "a.yaml: b; a file holds the entry it is named after and a-… ones"),
        ({"a": "{a: {}, a-b-c: {}}", "a-b": "{a-b-c: {}}"}, "a-b-c stands in another file of"),
        ({"a": "- b"}, "a.yaml: holds list and no mapping of keys to values"),
    ],
)
def test_a_catalogues_file_holds_the_entries_of_its_name(tmp_path, files, line):
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    with pytest.raises(UserError) as error:
        catalogue(tmp_path)
    assert line in str(error.value)


def test_a_recipe_that_holds_no_keys_is_named(tmp_path):
    (recipe := tmp_path / "config/recipes/mine.yaml").parent.mkdir(parents=True)
    recipe.write_text("just words")
    with pytest.raises(UserError, match=f"{recipe}: holds str and no mapping"):
        assembled({"recipes": ["mine"]}, tmp_path)
    recipe.write_text("models: [de, ce]")
    with pytest.raises(UserError, match=f'{recipe}: models is \\["de", "ce"\\]; allowed: mapping'):
        assembled({"recipes": ["mine"]}, tmp_path)


def test_a_recipe_stands_behind_those_that_it_names(tmp_path):
    folder = tmp_path / "config/recipes"
    folder.mkdir(parents=True)
    (folder / "base.yaml").write_text("models: {de: {dim: 1, init: encoder}}")
    (folder / "more.yaml").write_text("recipes: [base]\nmodels: {de: {dim: 2}}")
    (folder / "last.yaml").write_text("recipes: [more, base]\nmodels: {ce: {init: de}}")
    whole = {"de": {"dim": 2, "init": "encoder"}, "ce": {"init": "de"}}
    for recipes in (["last"], ["base", "last"], ["last", "more"]):
        config = assembled({"recipes": recipes}, tmp_path)
        assert (config["models"], config["recipes"]) == (whole, recipes)


@pytest.mark.parametrize(
    ("recipes", "line"),
    [
        ("more", 'more.yaml: recipes is "more"; allowed: list'),
        ("[mroe]", "more.yaml: recipes: mroe is unknown; did you mean more?"),
        (
            "[other]",
            "other.yaml: recipes: recipes name each other in a circle: more → other → more",
        ),
    ],
)
def test_recipes_that_a_recipe_cannot_stand_behind_are_one_line(tmp_path, recipes, line):
    folder = tmp_path / "config/recipes"
    folder.mkdir(parents=True)
    (folder / "more.yaml").write_text(f"recipes: {recipes}")
    (folder / "other.yaml").write_text("recipes: [more]")
    with pytest.raises(UserError) as error:
        assembled({"recipes": ["more"]}, tmp_path)
    assert line in str(error.value)


def test_a_null_within_a_value_of_the_command_line_is_null(configured):
    """Snakemake hands it over as text, which a key of text would take for a name."""
    settings = load_settings(
        configured() | {"score": {"split": "null"}, "models": {"mine": "null"}}, ROOT
    )
    assert settings.score.split is None
    assert "mine" not in settings.models


def test_a_package_s_entry_takes_no_other_s_place(tmp_path, monkeypatch):
    brought = tmp_path / "mine/config/datasets"
    brought.mkdir(parents=True)
    (brought / "dureader-retrieval.yaml").write_text(
        "dureader-retrieval: {source: beir, path: elsewhere}\n"
    )
    monkeypatch.setattr(merging, "CONTRIB", tmp_path)
    with pytest.raises(
        UserError, match=r"mine/config/datasets: dureader-retrieval stands in another catalogue"
    ):
        merging.shipped_entries(ROOT, "datasets")
