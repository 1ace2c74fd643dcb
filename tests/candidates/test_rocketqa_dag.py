"""RocketQA's four steps through Snakemake on the tiny collection: random, denoised and pseudo-labelled lists."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tandem.planning.plan import Plan

ROOT = Path(__file__).parents[2]
TRAIN = {"steps": 4, "queries_per_batch": 4, "lr": 1e-3, "precision": "fp32"}
SURE = {"by": "m_c", "negative_below": 0.6}


def write_beir(folder, documents):
    """Each train query asks for a subject's third passage, each test query for its second."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": doc, "title": title, "text": text} for doc, title, text in documents]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    subjects, asked = [doc.removesuffix("-1") for doc, _, _ in documents if doc.endswith("-1")], []
    for split, part, text in (("train", 3, "what does the {} eat"), ("test", 2, "how does the {} behave")):
        asked += [{"_id": f"{split}-{one}", "text": text.format(one)} for one in subjects]
        (folder / f"qrels/{split}.tsv").write_text("".join(f"{split}-{one}\t{one}-{part}\t1\n" for one in subjects))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))


@pytest.fixture(scope="module")
def made(tmp_path_factory, encoder_folder, documents):
    """The folder where the recipe's last model has been trained, which takes all four steps."""
    folder = tmp_path_factory.mktemp("rocketqa")
    write_beir(folder / "beir", documents)
    judged = {"from": "m_d1", "split": "unlabelled", "labels": "judge", "depth": 10, "negatives": 4, "take": "first"}
    config = {
        "dataset": "tiny-unlabelled",
        "datasets": {
            "tiny": {"source": "beir", "path": str(folder / "beir")},
            "tiny-unlabelled": {"source": "unlabelled", "of": "tiny", "share": 0.5},
        },
        "encoder": str(encoder_folder),
        "recipes": ["dureader_retrieval", "rocketqav2", "rocketqa"],
        "tables": [],
        "depth": {"train": 50, "dev": 50, "test": 50},
        "rerank": {"depth": 5, "precision": "fp32"},
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 32, "precision": "fp32"},
        "models": {
            "m_d0": {"train": TRAIN},
            "m_c": {"candidates": {"depth": 20}, "train": TRAIN},
            "m_d1": {"candidates": {"depth": 10, "denoise": {**SURE, "backfill": {"first_rank": 11, "depth": 30}}}},
            "m_d2": {"candidates": {"also": [{**judged, "denoise": {**SURE, "positive_above": 0.4}}]}},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    last = Plan(config, ROOT).resolver.model("m_d2", "test").folder
    command = [
        *(sys.executable, "-m", "snakemake", f"{last}/stage.json", "-s", str(ROOT / "Snakefile")),
        *("--directory", str(folder), "--cores", "2", "--workflow-profile", "none"),
        *("--rerun-triggers", "mtime", "params", "--configfile", str(folder / "config.yaml")),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def lists(made, source):
    """Rows of the candidates of a name, one list of rows a stage."""
    return [
        pq.read_table(path).to_pylist() for path in made.glob(f"results/*/candidates/{source}-*/candidates.parquet")
    ]


def test_the_steps_draw_from_where_the_paper_does(made):
    (random,) = lists(made, "random")
    assert {row["source"] for row in random} == {"qrels", "random"}
    queries = pq.read_table(next(made.glob("results/tiny-unlabelled/dataset/*/queries.parquet"))).to_pylist()
    split = {row["query_id"]: row["split"] for row in queries}
    assert {split[row["query_id"]] for row in random} == {"train"}
    (pseudo,) = lists(made, "m_d1")
    assert {split[row["query_id"]] for row in pseudo} == {"unlabelled"}
    assert {row["source"] for row in pseudo if row["label"]} == {"judge"}
    denoised = next(rows for rows in lists(made, "m_d0") if rows[0]["list"] == "denoised")
    for row in denoised:  # of the window only what the judge is sure of, below it what nobody judged
        assert row["label"] or (row["judge"] < 0.6 if row["rank"] <= 10 else row["judge"] != row["judge"])


def test_the_last_model_has_learned_from_both(made):
    (told,) = made.glob("results/*/model/m_d2-*/stage.json")
    manifest = json.loads(told.read_text())
    drawn = {role for role in manifest["upstream"] if role.startswith("candidates")}
    assert drawn == {"candidates", "candidates.1"}
    reports = [json.loads((Path(made) / folder / "report.json").read_text())
               for role, folder in manifest["upstream"].items() if role in drawn]  # fmt: skip
    assert manifest["lists"] == sum(sum(report["lists"].values()) for report in reports)
