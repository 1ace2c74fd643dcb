"""No id and no name of a configuration or of data leads out of results/ and the data folder."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
NAMES = [
    "../up",
    "/etc/passwd",
    "a/b",
    "..",
    ".",
    "a\0b",
    "a\nb",
    "-rf",
    "a b",
    "",
    "~root",
    "$(x)",
]
SWEEP = {"grid": {"bm25.k1": [0.5, 0.9]}, "systems": ["bm25"]}


def configs_named(name):
    """Configurations in which something that is made has this name."""
    model = {"like": "de_bm25neg"}
    return {
        "dataset": {"dataset": name, "datasets": {name: {"source": "beir", "path": "x"}}},
        "model": {"models": {name: model}, "systems": [name]},
        "sparse": {"sparse": {name: {"k1": 1.2}}, "systems": [name]},
        "index": {"indexes": {name: {"type": "flat"}}, "systems": [f"de_bm25neg@{name}"]},
        "fusion": {
            "fusions": {name: {"of": ["bm25", "de_bm25neg"], "method": "rrf"}},
            "systems": [name],
        },
        "ensemble": {
            "ensembles": {name: {"of": ["ce_bm25neg", "ce_deneg"]}},
            "systems": [f"bm25+{name}"],
        },
        "sweep": {"sweeps": {name: SWEEP}},
    }


@pytest.mark.parametrize("kind", configs_named(""))
def test_a_name_that_is_no_plain_name_is_refused(configured, kind):
    for name in NAMES:
        with pytest.raises(UserError) as caught:
            plan = FullPlan({**configured(), **configs_named(name)[kind]}, ROOT)
            pytest.fail(
                f"{kind} {name!r} is planned: {plan.files_of_all() or [stage.key for stage in plan.stages.values()]}"
            )
        assert str(caught.value).isprintable(), (kind, name)


@pytest.mark.parametrize("name", ["a b.yaml", "$(x).yaml", "..yaml", "a\nb.yaml"])
def test_a_layout_file_with_such_a_name_is_refused(configured, tmp_path, name):
    (tmp_path / name).write_text(
        yaml.safe_dump({"title": "x", "columns": [{"measure": "RR@10"}], "rows": []})
    )
    with pytest.raises(UserError, match="a layout's file name may hold"):
        FullPlan(configured("tables", [str(tmp_path / name)]), ROOT)


def test_ids_never_become_paths(make_job, tmp_path):
    ids = ["../../../up", "/etc/passwd", "a/b", "..", "$(touch${IFS}pwned)", "<script>"]
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": item, "title": "", "text": f"text {at}"} for at, item in enumerate(ids)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": item, "text": "asks"}) + "\n" for item in ids)
    )
    judged = "".join(f"{item}\t{item}\t1\n" for item in ids)
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "results/mine/dataset/mine-0000000000"
    run(make_job("dataset", out, {"source": "beir"}, execution={"path": str(folder)}))
    names = {
        str(path.relative_to(out)) for path in set(tmp_path.rglob("*")) - before if path.is_file()
    }
    assert names == {
        "stage.json",
        "corpus.parquet",
        "queries.parquet",
        "qrels.parquet",
        "statistics.json",
    }
    shutil.rmtree(out)
