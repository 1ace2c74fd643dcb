"""GAR and DRAGON through the graph, on the tiny collection with answers: all stages of both, from the command line."""

import json
from contextlib import chdir

import pyarrow.parquet as pq
import pytest
import yaml
from tiny_project import SUBJECTS, TRAIN, tiny_config, write_beir

from tandem.data.collection import Collection
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


@pytest.fixture
def project(tmp_path, encoder_folder, documents, snakemake_in):
    """The tiny project with answers, two contexts of GAR, and DRAGON with two teachers."""
    write_beir(tmp_path / "beir", documents)
    answers = [{"_id": f"train-{name}", "answers": [food]} for name, (_, _, food) in SUBJECTS.items()]
    (tmp_path / "beir/answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    (tmp_path / "layout.yaml").write_text(yaml.safe_dump(LAYOUT))
    config = tiny_config(tmp_path, encoder_folder) | {
        "tables": [str(tmp_path / "layout.yaml")],
        "bm25": {"engine": "bm25s"},
        "encoders": {"teacher": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}},
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
            "tiny": {"source": "beir", "path": str(tmp_path / "beir")},
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
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return snakemake_in(tmp_path)


def find(folder, kind, name):
    """The only artifact of a kind whose name begins so."""
    [path] = folder.glob(f"results/*/{kind}/{name}-*")
    return open_artifact(path)


def test_both_systems_from_the_command_line(project):
    status, output = project()
    assert status == 0, output
    folder = project.folder
    with chdir(folder):
        assert "not made" not in (folder / "results/tables/layout.md").read_text()

        contexts = find(folder, "generated", "answers")
        texts = pq.read_table(contexts.path("generated.parquet")).to_pylist()
        assert [row["id"] for row in texts] == list(Collection(find(folder, "dataset", "tiny")).queries("test"))

        queries = Collection(find(folder, "dataset", "dragon")).queries("train")
        sentences = [name for name in queries if ".s" in name]
        assert len(sentences) == 10
        assert len(queries) > 10  # and generated ones

        second = find(folder, "model", "dragon_2")
        lists = [role for role in second.upstream if role.startswith("candidates")]
        assert len(lists) == 2
        assert second.manifest.facts["lists"] > len(queries)  # lists of both teachers

    assert "Nothing to be done" in project()[1]


def test_a_context_that_the_collection_lacks_is_one_line(project):
    (project.folder / "beir/answers.jsonl").unlink()
    status, output = project("results/tables/layout.csv")
    assert status
    assert "no query of split train has an answer, which target: answer needs" in output
    assert "Traceback" not in output
