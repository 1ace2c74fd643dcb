"""Every mistake in a configuration is one line with its dotted path; text becomes what the schema says."""

from pathlib import Path

import pytest

from tandem.config.loading import load_settings
from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
CE = "models.ce_bm25neg"


def mistakes(config):
    with pytest.raises(UserError) as error:
        FullPlan(config, ROOT)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("encodr", "minilm", "encodr is not a known key; did you mean encoder?"),
        ("rerank.depht", 5, "rerank.depht is not a known key; did you mean depth?"),
        ("seed", "many", 'seed is "many"; allowed: integer'),
        ("bm25.b", 1.5, "bm25.b is 1.5; allowed: ≤ 1"),
        (f"{CE}.train.lr", "fast", f'{CE}.train.lr is "fast"; allowed: number'),
        (f"{CE}.train.lr", 0, f"{CE}.train.lr is 0.0; allowed: > 0"),
        (f"{CE}.train.loss", "triplet", f'{CE}.train.loss is "triplet"; allowed: listwise, pointwise, hinge, ranknet'),
        (f"{CE}.train.margin", 0.2, f"{CE}.train.margin is 0.2, but listwise takes none; used by hinge"),
        (f"{CE}.train.passage_centric", 0.1, f"{CE}.train.passage_centric is not a known key"),
        (
            "models.rocketqav2.train.temperature",
            2,
            "models.rocketqav2.train.temperature is 2.0, but listwise or paper takes none; used by kl, kl_t2",
        ),
        ("models.de_bm25neg.train.regularise", {"query": {"flop": 1}}, "regularise.query.flop is not a known key"),
        (f"{CE}.objective", "triple", f"{CE}.objective is 'triple'; allowed: dual, cross, joint"),
        (f"{CE}.init", "nowhere", f"{CE}.init: nowhere is neither a model nor an encoder"),
        (f"{CE}.candidates.from", "bm26", f"{CE}.candidates.from: bm26 is no model"),
        (f"{CE}.candidates.from", "ce_deneg", f"{CE}.candidates.from: ce_deneg is a cross model, needed is dual"),
        ("dataset", "pydoc", "dataset: pydoc is unknown; did you mean pydocs?"),
        ("encoder", "minilmm", "encoder: minilmm is unknown"),
        ("recipes", ["rocketqa2"], "recipes: rocketqa2 is unknown; did you mean rocketqav2?"),
        ("tables", ["rocketqav2/table5"], "tables: rocketqav2/table5 is unknown; did you mean rocketqav2/table4?"),
        ("rerank.depth", 5000, "rerank.depth is 5000, but runs on test are 1000 deep; raise depth.test"),
        (
            "score.measures",
            ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50", "R@2000"],
            "score.measures: R@2000 looks deeper than the runs go (1000); raise depth.test",
        ),
        ("score.usual", ["RR@10", "nDGC@10"], "score.usual: nDGC@10 is not a measure; did you mean nDCG?"),
        ("score.measures", ["RR@10", "MRR@10"], "score.measures: MRR@10 is RR@10 again; each is listed once"),
        ("bm25.tune.measure", "RRR", "bm25.tune.measure: RRR is not a measure"),
        ("datasets.pydocs.measures", ["R"], "datasets.pydocs.measures: R is malformed; write R@10"),
        ("tables", ["baselin"], "tables: baselin is unknown; did you mean baseline?"),
        ("train_on", "scifct", "dataset: scifct is unknown"),
        (
            "models.rocketqav2.candidates.depth",
            500,
            "models.rocketqav2.candidates.depth is 500, but de_bm25neg retrieves only 50 passages per training query",
        ),
        (
            "models.rocketqav2.train.list_size",
            128,
            "models.rocketqav2.train.list_size is 128, but its candidates give at most 20 negatives per query",
        ),
        (f"{CE}.train.select", "best", f"{CE}.train.select is best, which needs {CE}.train.validate_every"),
        ("score.measures", ["RR@10"], "shows Success@1; add it to score.measures (RR@10)"),
        ("models.ce_deneg.like", "ce_bm25", "models.ce_deneg.like is ce_bm25, which is no model"),
    ],
)
def test_a_mistake_is_one_line(configured, path, value, line):
    found = mistakes(configured(path, value))
    assert any(line in one for one in found), found


def test_several_mistakes_are_several_lines(configured):
    config = configured("seed", "x")
    config["bm25"] = {"k1": -1, "c": 2}
    assert len(mistakes(config)) == 3


def test_a_cycle_of_models_is_named(configured):
    config = configured("models.de_bm25neg.candidates", {"from": "rocketqav2.retriever", "depth": 50})
    assert any("models form a cycle: de_bm25neg -> rocketqav2 -> de_bm25neg" in line for line in mistakes(config))


def test_a_cycle_of_starts_is_named(configured):
    lines = mistakes(configured("models.ce_bm25neg.init", "ce_deneg"))
    assert any("models form a cycle" in line and "ce_bm25neg -> ce_deneg -> ce_bm25neg" in line for line in lines)


def test_a_missing_folder_is_named(configured, tmp_path):
    config = configured("datasets", {"mine": {"source": "beir", "path": str(tmp_path / "none")}}) | {"dataset": "mine"}
    assert mistakes(config) == [f"datasets.mine.path is {tmp_path / 'none'}; no such file or folder"]


def test_an_unknown_dataset_key_is_named(configured):
    lines = mistakes(configured("datasets", {"mine": {"source": "beir", "pth": "x"}}))
    assert lines == ["datasets.mine.pth is not a known key; did you mean path?"]


def test_an_encoder_folder_without_safetensors_is_refused(configured, tmp_path):
    (tmp_path / "pytorch_model.bin").touch()
    lines = mistakes(configured("encoder", str(tmp_path)))
    assert lines[-1].endswith("holds no model.safetensors; only safetensors are loaded")


def test_text_from_the_command_line_is_typed(configured):
    config = configured("models.rocketqav2.train", {"lr": "1e-5", "steps": "20", "in_batch": "true", "clip": "null"})
    train = load_settings(config, ROOT)["models"]["rocketqav2"]["train"]
    assert (train["lr"], train["steps"], train["in_batch"], train["clip"]) == (1e-5, 20, True, None)
    assert isinstance(train["lr"], float)
    assert isinstance(train["steps"], int)


def test_an_integer_for_a_number_is_the_same_number(configured):
    value = load_settings(configured("bm25.k1", 1), ROOT)["bm25"]["k1"]
    assert isinstance(value, float)
    assert value == 1.0


def test_like_lays_keys_upon_the_other_model(configured):
    models = load_settings(configured(), ROOT)["models"]
    full, static = models["rocketqav2_8"], models["rocketqav2_8_static"]
    assert static["train"] == full["train"] | {"teacher": "static"}
    assert static["candidates"] == full["candidates"]
    assert models["rocketqav2_8_nodenoise"]["candidates"]["denoise"] is None
