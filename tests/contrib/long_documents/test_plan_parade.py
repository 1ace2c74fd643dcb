"""PARADE as stages: whose token ids are read, by training and by re-ranking, and what does not fit in one line."""

from pathlib import Path

import pytest

from tandem.config.merging import gathered, merged
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]
PARADE = {
    "objective": "cross",
    "init": "ce_bm25neg",
    "parade": {"windows": "cut", "aggregate": "attention"},
    "candidates": {"from": "bm25", "depth": 20},
    "train": {"loss": "listwise", "steps": 2, "queries_per_batch": 2, "list_size": 3},
}


@pytest.fixture
def planner(configured, folder):
    """`planner(models, **more)`: of the default on documents `long` with windows `cut`, and models over `PARADE`."""

    def make(models, **more):
        cut = {"source": "windows", "of": "long"}
        datasets = {"long": {"source": "beir", "path": folder}, "cut": cut} | more.pop(
            "datasets", {}
        )
        config = configured() | {"datasets": datasets, "dataset": "long", **more}
        models = {name: PARADE | entry for name, entry in models.items()}
        return Plan(config | {"models": models}, ROOT).planner

    return make


def test_documents_are_listed_and_their_windows_read(planner):
    model = planner({"parade": {}}).model("parade", "here")
    assert model.values["parade"] == {"aggregate": "attention", "layers": 2}
    assert (model.dataset, model.upstream["dataset"].dataset) == ("long", "long")
    assert model.upstream["candidates"].dataset == "long"
    assert model.upstream["tokens"].dataset == "cut"
    assert model.upstream["windows"].upstream["of"] is model.upstream["dataset"]


def test_a_run_of_documents_is_reranked_by_their_windows(planner):
    stage = planner({"parade": {}}).run("bm25+parade", "test", "here")
    assert (stage.kind, stage.dataset, stage.upstream["run"].dataset) == ("rerank", "long", "long")
    assert stage.upstream["tokens"].dataset == "cut"


def test_other_models_keep_their_keys(planner, configured, folder):
    stage = planner({"parade": {}}).model("ce_bm25neg", "here")
    assert "parade" not in stage.values


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"pooling": "segments", "init": "encoder"},
            "models.parade.pooling is segments, but parade pools each window",
        ),
        (
            {"parade": {"windows": "long"}},
            "models.parade.parade.windows is long, which is not a dataset of source windows",
        ),
        (
            {"parade": {"windows": "cutt"}},
            "models.parade.parade.windows is cutt, which is not a dataset",
        ),
        ({"parade": {}}, "models.parade.parade.windows is missing"),
        (
            {"parade": {"windows": "cut", "aggregate": "cnn"}},
            'aggregate is "cnn"; allowed: mean, max, sum, attention',
        ),
        (
            {"train": {"checkpoints": 2, "steps": 2}},
            "models.parade.train.checkpoints: others validate on a part",
        ),
        ({"dataset": "pydocs"}, "models.parade: parade reads windows of long (cut), not of pydocs"),
    ],
)
def test_what_does_not_fit_is_one_line(planner, entry, line):
    with pytest.raises(UserError) as error:
        planner({"parade": entry}).model("parade")
    (message,) = str(error.value).splitlines()
    assert line in message


def test_windows_have_the_queries_of_their_documents(planner):
    cut = {"source": "windows", "of": "long", "train_queries": 3}
    with pytest.raises(UserError) as error:
        planner({"parade": {}}, datasets={"cut": cut}).model("parade")
    assert str(error.value) == (
        "datasets.cut.train_queries is set, but models.parade.parade.windows needs the queries of long; "
        "leave it out, or set it in datasets.long"
    )


def test_a_start_that_is_parade_needs_a_model_that_is(planner):
    later = {"init": "parade", "parade": {"windows": "cut", "aggregate": "mean"}}
    with pytest.raises(UserError) as error:
        planner({"parade": {}, "plain": {"init": "parade", "parade": None}, "other": later})
    assert str(error.value).splitlines() == [
        "models.plain.init is parade, which is PARADE; say models.plain.parade, too",
        "models.other.parade differs from parade's, which it starts from; take over its keys",
    ]


def test_windows_alone_are_not_scored_by_it(planner):
    with pytest.raises(
        UserError, match=r"aggregations.x.by: parade reads windows of long \(cut\), not of cut"
    ):
        planner(
            {"parade": {}}, aggregations={"x": {"of": "bm25", "by": "parade", "windows": "cut"}}
        )


def test_the_small_table_scores_each_system_by_where_the_paragraph_stands(folder):
    squad = {"source": "beir", "path": folder}
    config = merged(
        gathered([ROOT / "config/small/articles.yaml"], ROOT), {"datasets": {"squad": squad}}
    )
    table = Plan(config, ROOT).tables["articles"]
    splits = {"": "test", ", first paragraph": "test_p1", ", fifth or later": "test_p5on"}
    rows = {row.system: stage for row, stage in table}
    for suffix, split in splits.items():
        stage = rows[f"PARADE-Transformer{suffix}"].upstream["run"]
        assert (stage.kind, stage.upstream["run"].values["split"]) == ("rerank", split)
        assert stage.upstream["model"].dataset == "articles"
        assert stage.upstream["tokens"].dataset == "windows"
        # FirstP and MaxP by the cross-encoder that PARADE starts from
        first = rows[f"CE (FirstP){suffix}"].upstream["run"].upstream["judge.0"]
        assert first is stage.upstream["model"].upstream["start"]
