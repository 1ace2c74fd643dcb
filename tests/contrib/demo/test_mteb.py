"""`tandem export --mteb`: the scores that the tables have, in files that MTEB reads."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
import yaml
from trec import iter_trec

from tandem.cli import run
from tandem.config.datasets import MtebTask
from tandem.contrib.demo.export import (
    describe_task,
    find_own_depth,
    gather_task_result,
    join_subsets,
)
from tandem.data.collection import EXCLUDED, Collection
from tandem.errors import UserError
from tandem.plan.graph import Stage
from tandem.plan.plan import Plan
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

ROOT = Path(__file__).parents[3]
TASK = {"task": "TinyRetrieval", "split": "train"}


def export(built, tmp_path, system, entry, **keys):
    """Export a system with a key `mteb` for the dataset."""
    tiny = yaml.safe_load((built.folder / "config.yaml").read_text())["datasets"]["tiny"]
    (tmp_path / "mteb.yaml").write_text(
        yaml.safe_dump({"datasets": {"tiny": {**tiny, "mteb": entry}}, **keys})
    )
    with contextlib.chdir(built.folder):
        files = ["config.yaml", str(tmp_path / "mteb.yaml")]
        assert run(["export", system, *files, "--mteb", "--out", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


@pytest.mark.parametrize("system", ["bm25", "de_bm25neg", "bm25+ce_bm25neg"])
def test_the_values_are_trec_evals(built, tmp_path, system):
    (file,) = export(built, tmp_path, system, TASK).glob("results/*/*/TinyRetrieval.json")
    assert file.parent.parent.name == f"tandem__{system}"
    result = json.loads(file.read_text())
    ((split, (scores,)),) = result["scores"].items()
    assert (split, scores["hf_subset"], scores["languages"]) == ("train", "default", ["eng-Latn"])
    (place,) = built.folder.glob(f"results/tiny/*/{system}.test-*/run.trec")
    (data,) = built.folder.glob("results/tiny/dataset/tiny-*")
    ranked = {
        query: dict(zip(docs, values.tolist(), strict=True))
        for query, docs, values in iter_trec(place)
    }
    qrels = Collection(open_artifact(data)).qrels("test")
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg_cut.10,20", "recall.1,5", "map_cut.3", "success.1", "P.3"}
    )
    values = theirs.evaluate(ranked).values()
    names = {"ndcg_at_10": "ndcg_cut_10", "ndcg_at_20": "ndcg_cut_20", "recall_at_5": "recall_5"}
    names |= {
        "map_at_3": "map_cut_3",
        "hit_rate_at_1": "success_1",
        "precision_at_3": "P_3",
        "accuracy": "recall_1",
    }
    for ours, name in names.items():
        assert scores[ours] == pytest.approx(
            sum(value[name] for value in values) / len(qrels), abs=1e-6
        )
    assert scores["main_score"] == scores["ndcg_at_10"]
    assert "ndcg_at_100" not in scores  # runs are 20 deep


def test_a_judged_query_without_a_relevant_passage_counts_as_0(
    make_job, write_ranked, tmp_path, monkeypatch
):
    """Of `otter` the relevant passage is first; `eel` has a grade of 0 alone, `heron` none but excluded ones."""
    monkeypatch.chdir(tmp_path)
    grades = {"otter": 1, "eel": 0, "heron": EXCLUDED}
    data = Stage("dataset", "tiny", "tiny", {"source": "beir", "fingerprint": "00"})
    with writing(make_job("dataset", Path(data.folder), data.values)) as draft:
        draft.facts["checksum"] = "00"
        tables = {
            "corpus": {"doc_id": ["a"], "title": [""], "text": ["x"]},
            "queries": {"query_id": [*grades], "text": [*grades], "split": ["test"] * 3},
            "qrels": {
                "query_id": [*grades],
                "doc_id": ["a"] * 3,
                "relevance": [*grades.values()],
                "split": ["test"] * 3,
            },
        }
        for name, columns in tables.items():
            pq.write_table(pa.table(columns), draft.path(f"{name}.parquet"))
    found = Stage("retrieve", "tiny", "x.test", {"depth": 1, "split": "test"}, {"dataset": data})
    lists = [(query, ["a"], np.ones(1, np.float32)) for query in grades]
    write_ranked("retrieve", Path(found.folder), found.values, {"dataset": data.folder}, lists)
    scored = {"split": "test", "measures": ["nDCG@1"]}
    score = Stage("score", "tiny", "x.test", scored, {"dataset": data, "run": found})
    task = MtebTask(**TASK, main_score="ndcg_at_1")
    result = gather_task_result(task, score, 1, ["eng-Latn"])
    assert result["scores"]["train"][0]["main_score"] == 0.5  # not 1, nor 1/3


def test_mteb_reads_it(built, tmp_path):
    mteb = pytest.importorskip("mteb")
    out = export(built, tmp_path, "bm25", {**TASK, "task": "NanoSciFactRetrieval"})
    results = mteb.ResultCache(str(out)).load_results(include_remote=False)
    (model,) = results.model_results
    (result,) = model.task_results
    assert (model.model_name, result.task_name) == ("tandem/bm25", "NanoSciFactRetrieval")
    (file,) = out.rglob("NanoSciFactRetrieval.json")
    assert result.get_score() == json.loads(file.read_text())["scores"]["train"][0]["ndcg_at_10"]


@pytest.mark.parametrize(
    ("entry", "keys", "message"),
    [
        (None, {}, r"datasets\.tiny\.mteb is missing; say which task"),
        (
            {**TASK, "main_score": "ndcg_at_100"},
            {},
            "mteb.main_score is ndcg_at_100, but runs are 20 deep",
        ),
        (
            TASK,
            {"depth": {"test": 30}},
            r"bm25 cannot be used before .* is built; build it: snakemake",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(built, tmp_path, entry, keys, message):
    with pytest.raises(UserError, match=message):
        export(built, tmp_path, "bm25", entry, **keys)
    assert not Path(tmp_path / "out").exists()


def test_a_cut_dataset_is_no_task_of_mteb(built, tmp_path, monkeypatch):
    monkeypatch.chdir(built.folder)
    tiny = yaml.safe_load((built.folder / "config.yaml").read_text())["datasets"]["tiny"]
    (tmp_path / "cut.yaml").write_text(
        yaml.safe_dump({"datasets": {"tiny": {**tiny, "mteb": TASK, "test_queries": 3}}})
    )
    with pytest.raises(
        UserError, match="test_queries is 3, which the task TinyRetrieval is not; set it to null"
    ):
        run(
            [
                "export",
                "bm25",
                "config.yaml",
                str(tmp_path / "cut.yaml"),
                "--mteb",
                "--out",
                str(tmp_path / "out"),
            ]
        )


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        (
            "scifact",
            {"score/split": "train"},
            r"score\.split is train, but split test of the task SciFact is test here; leave it out",
        ),
        (
            "scifact",
            {"datasets/scifact/score_split": "train"},
            r"datasets\.scifact\.score_split is train, but split test of .* say which split train is there",
        ),
        # NanoBEIR's split of MTEB is `train`, but ours is test
        (
            "nanobeir-scifact",
            {"score/split": "train"},
            r"score\.split is train, but split train of the task NanoSciFactRetrieval is test here",
        ),
        (
            "c-mteb-du",
            {"datasets/c-mteb-du/dev_queries": 9},
            r"c-mteb-du\.dev_queries is 9, which the task DuRetrieval is not; set it to null",
        ),
        (
            "c-mteb-du",
            {"datasets/c-mteb-du/dev_from_train": 0.1},
            r"c-mteb-du\.dev_from_train is 0\.1, which the task DuRetrieval is not",
        ),
    ],
)
def test_another_split_than_the_tasks_is_refused(configured, overridden, name, keys, message):
    ctx = Plan(overridden(configured(), keys), ROOT).planner.ctx
    with pytest.raises(UserError, match=message):
        describe_task(ctx, name)


@pytest.mark.parametrize(
    ("name", "keys", "split"),
    [
        ("scifact", {"score/split": "test", "datasets/scifact/train_queries": 9}, "test"),
        (
            "scifact",
            {
                "datasets/scifact/score_split": "train",
                "datasets/scifact/mteb": {"task": "SciFact", "split": "train"},
            },
            "train",
        ),
        ("c-mteb-du", {"score/split": "dev", "datasets/c-mteb-du/test_queries": 9}, "dev"),
    ],
)
def test_the_split_of_a_task(configured, overridden, name, keys, split):
    ctx = Plan(overridden(configured(), keys), ROOT).planner.ctx
    assert describe_task(ctx, name).split == split


def test_the_subsets_of_a_task_stand_in_one_file():
    def scored(task, split, subset):
        return {"task_name": task, "scores": {split: [{"hf_subset": subset}]}}

    results = [
        scored("Same", "test", "de"),
        scored("Other", "test", "default"),
        scored("Same", "test", "en"),
        scored("Same", "dev", "de"),
    ]
    joined = join_subsets(results)
    assert list(joined) == ["Same", "Other"]
    assert joined["Same"]["scores"] == {
        "test": [{"hf_subset": "de"}, {"hf_subset": "en"}],
        "dev": [{"hf_subset": "de"}],
    }


def test_two_datasets_of_one_task_are_refused(built, tmp_path):
    tiny = yaml.safe_load((built.folder / "config.yaml").read_text())["datasets"]["tiny"]
    tiny["mteb"] = TASK
    both = {"source": "group", "of": ["tiny", "again"]}
    datasets = {"tiny": tiny, "again": tiny, "both": both}
    keys = {"dataset": "both", "train_on": "tiny", "datasets": datasets}
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(keys))
    files = ["config.yaml", str(tmp_path / "both.yaml")]
    message = (
        r"datasets\.again\.mteb is TinyRetrieval, subset default, split train, as that of .*tiny"
    )
    with contextlib.chdir(built.folder), pytest.raises(UserError, match=message):
        run(["export", "bm25", *files, "--mteb", "--out", str(tmp_path / "out")])


def test_a_fusion_goes_as_deep_as_its_key_says(configured):
    fusion = {"of": ["bm25", "de_bm25neg"], "depth": 100}
    config = configured("fusions", {"short": fusion}) | {"score": {"measures": ["RR@10"]}}
    planner = Plan(config | {"tables": []}, ROOT).planner
    assert find_own_depth(planner.score("short", "here")) == 100
    assert find_own_depth(planner.score("bm25", "here")) == float("inf")
