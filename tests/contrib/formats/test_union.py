"""Several datasets as one: every id says which it came from, and nothing else changes."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.plan.dataset_stages import splits
from tandem.plan.plan import Plan
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

ROOT = Path(__file__).parents[3]


@pytest.fixture
def parts(beir, make):
    """Two datasets that use the same ids: q1 of train asks for d1; the second has answers and no training query."""
    datasets = []
    for name, split in (("first", "train"), ("second", "test")):
        (beir / "queries.jsonl").write_text(
            json.dumps({"_id": "q1", "text": f"asked of the {name}"}) + "\n"
        )
        for file in (beir / "qrels").glob("*.tsv"):
            file.unlink()
        (beir / "qrels" / f"{split}.tsv").write_text("q1\td1\t1\n")
        if name == "second":
            (beir / "answers.jsonl").write_text(
                json.dumps({"_id": "q1", "answers": ["yes"]}) + "\n"
            )
        datasets.append(make(name, {"source": "beir"}, path=str(beir)))
    return datasets


def joined(folder, parts, names):
    inputs = {f"of.{i}": part for i, part in enumerate(parts)}
    run(Job("dataset", folder, {"source": "union", "names": names}, inputs, {}))
    return open_artifact(folder, "dataset")


def test_ids_say_where_they_come_from(parts, tmp_path):
    dataset = joined(tmp_path / "both-0123456789", parts, ["en", "zh"])
    collection = Collection(dataset)
    assert collection.queries("train") == {"en.q1": "asked of the first"}
    assert collection.queries("test") == {"zh.q1": "asked of the second"}
    assert collection.qrels("train") == {"en.q1": {"en.d1": 1}}
    assert collection.qrels("test") == {"zh.q1": {"zh.d1": 1}}
    part_rows, union_rows = (
        pq.read_table(part.path("corpus.parquet")).to_pylist() for part in (parts[0], dataset)
    )
    expected = [
        {**row, "doc_id": f"{name}.{row['doc_id']}"} for name in ("en", "zh") for row in part_rows
    ]
    assert union_rows == expected
    assert pq.read_table(dataset.path("answers.parquet")).to_pylist() == [
        {"query_id": "zh.q1", "answers": ["yes"]}
    ]


def test_two_of_one_name_are_refused(parts, tmp_path):
    with pytest.raises(UserError, match="names en, en must differ"):
        joined(tmp_path / "both-0123456789", parts, ["en", "en"])


@pytest.mark.parametrize(
    ("entry", "have"),
    [
        ({"source": "union", "of": ["pydocs", "cmrc2018"]}, "pydocs is en, cmrc2018 is zh"),
        ({"source": "pair", "corpus_of": "cmrc2018", "queries_of": "pydocs"}, "cmrc2018 is zh"),
    ],
)
def test_it_says_its_language_where_its_passages_have_another(configured, entry, have):
    """BM25 splits all passages by one language, which is English where nobody says it."""
    with pytest.raises(UserError, match=f"both.language is needed, .* not en: {have}"):
        Plan(configured("datasets.both", entry), ROOT).planner.dataset("both")
    of_chinese = entry | {"language": "zh"}
    Plan(configured("datasets.both", of_chinese), ROOT).planner.dataset("both")


def test_it_is_planned_from_its_parts(configured, tmp_path):
    union = {"source": "union", "of": ["pydocs", "cmrc2018"], "language": "en"}
    config = configured("datasets.both", union)
    planner = Plan(config, ROOT).planner
    stage = planner.dataset("both")
    assert [stage.upstream[f"of.{i}"].name for i in (0, 1)] == ["pydocs", "cmrc2018"]
    assert (stage.values["source"], stage.values["names"]) == ("union", ["pydocs", "cmrc2018"])
    assert splits(planner.ctx, "both") == {"train", "dev", "test", "trial"}
    config["datasets"]["both"]["of"] = ["pydocs", "both"]
    with pytest.raises(UserError, match="datasets form a cycle: both -> both"):
        Plan(config, ROOT).planner.dataset("both")
