"""GAR and DRAGON through the graph, on the tiny collection with answers: all stages of both, from the command line."""

import json
import re
import shutil
from contextlib import chdir

import pyarrow.parquet as pq
import pytest
import yaml
from building import build_in
from tiny_project import ROOT, SUBJECTS, TRAIN, tiny_config, write_beir

from tandem.config.merging import gathered
from tandem.data.collection import Collection
from tandem.extras.plan import FullPlan
from tandem.store.artifact import open_artifact

# After fewer steps all texts are empty.
SEQ2SEQ = {"steps": 80, "pairs_per_batch": 20, "lr": 1.0e-2, "dropout": 0.0, "precision": "fp32"}
CONTEXT = {
    "source": "train", "prompt": "{query}", "length": 16, "target_length": 8, "layers": 1, "decoder_layers": 1,
    "heads": 4, "feed_forward": 32, "train": SEQ2SEQ,
}  # fmt: skip
ASKS = {**CONTEXT, "prompt": "{passage}", "length": 32}
BY_RANK = {"labels": "rank", "positives": 2, "first_rank": 8, "depth": 10}
WRITTEN = {"of": "queries", "method": "greedy", "number": 1, "tokens": 6, "precision": "fp32"}
LAYOUT = {
    "title": "Generated",
    "baseline": {"system": "BM25"},
    "columns": [{"measure": "RR@10"}],
    "rows": [
        {"system": "BM25", "run": "bm25"},
        {"system": "GAR", "run": "gar"},
        {"system": "DRAGON", "run": "dragon_2"},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder_folder, documents):
    """The tiny project with answers, two contexts of GAR, and DRAGON with two teachers, all stages made."""
    folder = tmp_path_factory.mktemp("systems")
    write_beir(folder / "beir", documents)
    write_beir(folder / "without_answers", documents)
    answers = [
        {"_id": f"train-{name}", "answers": [food]} for name, (_, _, food) in SUBJECTS.items()
    ]
    (folder / "beir/answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    (folder / "layout.yaml").write_text(yaml.safe_dump(LAYOUT))
    config = tiny_config(folder, encoder_folder) | {
        "tables": [str(folder / "layout.yaml")],
        "bm25": {"engine": "bm25s"},
        "encoders": {
            "teacher": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}
        },
        "generators": {
            "answers": {**CONTEXT, "target": "answer"},
            "sentences": {**CONTEXT, "target": "sentence"},
            "asks": ASKS,
        },
        "generations": {
            "answers": {"by": "answers", **WRITTEN},
            "sentences": {"by": "sentences", **WRITTEN},
            "asked": {"by": "asks", "number": 1, "tokens": 6, "precision": "fp32"},
        },
        "sparse": {name: {"expand": {"from": name}} for name in ("answers", "sentences")},
        "fusions": {"gar": {"of": ["answers", "sentences"]}},
        "datasets": {
            "tiny": {"source": "beir", "path": str(folder / "beir")},
            "asked": {"source": "generated_queries", "from": "asked", "number": 1},
            "dragon": {"source": "cropped_sentences", "queries_of": "asked", "most": 10},
        },
        "models": {
            "dragon_1": {
                "objective": "dual",
                "dataset": "dragon",
                "candidates": {"from": "bm25", **BY_RANK},
                "train": {**TRAIN, "choose": "last", "list_size": 2, "steps": 2},
            },
            "dragon_2": {
                "like": "dragon_1",
                "init": "dragon_1",
                "candidates": {"also": [{"from": "teacher", **BY_RANK}]},
            },
        },
    }
    config.pop("rerank")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    other = {"datasets": {"tiny": {"path": str(folder / "without_answers")}}}
    (folder / "other.yaml").write_text(yaml.safe_dump(other))
    build_in(folder, "all", "config.yaml")
    return folder


def find(folder, kind, name):
    """The only artifact of a kind whose name begins so."""
    [path] = folder.glob(f"results/*/{kind}/{name}-*")
    return open_artifact(path)


def test_both_systems_are_in_a_table(folder, snakemake_in):
    for made in ("generated/sentences-*", "bm25/sentences.*", "fuse/gar.*", "score/gar.*"):
        for path in folder.glob(f"results/tiny/{made}"):
            shutil.rmtree(path)  # Snakemake makes these again
    status, output = snakemake_in(folder)()
    assert status == 0, output
    assert {"rule generated:", "rule bm25:", "rule fuse:"} <= set(re.findall(r"rule \w+:", output))
    assert "rule train_generator:" not in output
    with chdir(folder):
        assert "not made" not in (folder / "results/tables/layout.md").read_text()

        contexts = find(folder, "generated", "answers")
        texts = pq.read_table(contexts.path("generated.parquet")).to_pylist()
        assert [row["id"] for row in texts] == list(
            Collection(find(folder, "dataset", "tiny")).queries("test")
        )

        queries = Collection(find(folder, "dataset", "dragon")).queries("train")
        sentences = [name for name in queries if ".s" in name]
        assert len(sentences) == 10
        assert len(queries) > 10  # and generated ones

        second = find(folder, "model", "dragon_2")
        lists = [role for role in second.upstream if role.startswith("candidates")]
        assert len(lists) == 2
        assert second.manifest.facts["lists"] > len(queries)  # lists of both teachers

    assert "Nothing to be done" in snakemake_in(folder)()[1]


def test_a_context_that_the_collection_lacks_is_one_line(folder, snakemake_in):
    with chdir(folder):
        plan = FullPlan(gathered([folder / "config.yaml", folder / "other.yaml"], ROOT), ROOT)
        [training] = [
            key
            for key in plan.stages
            if key[0] == "train_generator" and key[1].startswith("answers-")
        ]
    status, output = snakemake_in(folder, "other.yaml")(plan.stages[training].manifest)
    assert status
    assert "no query of split train has an answer, which target: answer needs" in output
    assert "Traceback" not in output
