"""`lineage`: of an artifact, of a key, of a table's cell."""

import json
import shutil

import pytest

from tandem.cli import run
from tandem.errors import UserError
from tandem.plan.graph import Stage


def test_the_tree_says_what_made_each_stage(chain, project, run_command):
    _, lines = run_command("lineage", chain["score"].key)
    text = "\n".join(lines)
    assert lines[0] == f"score {chain['score'].key}"
    for stage in chain.values():
        assert f"{stage.kind} {stage.key}" in text
    manifest = project.manifest(chain["bm25"])
    assert 'params: k1=0.9, b=0.4, split="test"' in text
    assert f"input lucene: {chain['lucene'].key}, content {manifest['inputs']['lucene']}" in text
    assert f"file run.trec: 15 B, sha256 {manifest['files']['run.trec']['sha256'][:16]}" in text
    assert f"modules {manifest['modules']}" in text
    assert f"{manifest['machine']['cores']} cores, Python {manifest['machine']['python']}" in text
    assert lines[-1].startswith("4 stages, ")
    # told once; named again where it is an input again
    assert sum(f"dataset {chain['dataset'].key} (as" in line for line in lines) == 3
    assert run_command("lineage", chain["score"].folder)[1] == lines


def test_json_holds_whole_manifests_inputs_first(chain, project, run_command):
    _, lines = run_command("lineage", chain["score"].key, "--json")
    lineage = json.loads("\n".join(lines))
    assert lineage["of"] == [chain["score"].key]
    assert [entry["key"] for entry in lineage["stages"]] == [
        chain[n].key for n in ("dataset", "lucene", "bm25", "score")
    ]
    assert lineage["stages"][2]["manifest"] == project.manifest(chain["bm25"])
    assert lineage["stages"][3]["manifest"]["inputs"]["run"] == lineage["stages"][2]["content"]


@pytest.mark.parametrize(
    "cell",
    [
        'paper/table4:"BM25: the first":RR@10',
        "paper/table4:BM25: the first:MRR@10",
        "paper/table4:BM25: the first",
    ],
)
def test_a_cell_leads_to_its_scores(chain, write_table, run_command, cell):
    write_table("paper/table4", ("BM25: the first", chain["score"]))
    _, lines = run_command("lineage", cell)
    value = ": MRR@10 (RR@10) = 12.34" if cell.count(":") == 3 else ""
    assert lines[0] == f"paper/table4: BM25: the first{value}"
    assert lines[1] == f"score {chain['score'].key}"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("tiny:BM26:RR@10", "tiny has no row BM26.*did you mean BM25"),
        ("tiny:BM25:AP", r"AP is not a column; allowed: MRR@10 \(RR@10\)"),
        ("tiny", "tiny: is a table; name a row, tiny:ROW:COLUMN; it has BM25"),
        ("other:BM25", "other: is not a table; allowed: tiny"),
        ("score-0000000000", "no finished artifact"),
    ],
)
def test_what_is_not_there_is_one_line(chain, write_table, cell, message):
    write_table("tiny", ("BM25", chain["score"]))
    with pytest.raises(UserError, match=message):
        run(["lineage", cell])


def test_an_input_that_was_deleted_is_said_to_be(chain, project, run_command):
    shutil.rmtree(project.folder(chain["lucene"]))
    _, lines = run_command("lineage", chain["bm25"].key)
    assert any(
        line.strip().endswith(", deleted since") and chain["lucene"].key in line for line in lines
    )


def test_every_resolved_parameter_is_told_defaults_too(project, run_command):
    # capreolus 200: the documented configuration had lost decay=0.1, and for months nobody saw why numbers were lower
    train = {"lr": 1e-5, "warmup": 0.1, "decay": "linear", "dropout": None}
    model = Stage("model", "toy", "de", {"objective": "dual", "seed": 42, "train": train})
    project.make(model)
    text = "\n".join(run_command("lineage", model.key)[1])
    assert (
        'seed=42, train.lr=1e-05, train.warmup=0.1, train.decay="linear", train.dropout=null'
        in text
    )


def test_a_table_of_a_configuration_of_ones_own_is_named_with_it(chain, write_table, run_command):
    write_table("tiny", ("BM25", chain["score"]), views="results/mine")
    label, *tree = run_command("lineage", "mine/tiny:BM25")[1]
    assert label == "mine/tiny: BM25"
    assert tree == run_command("lineage", chain["score"].key)[1]
