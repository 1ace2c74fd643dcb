"""A published encoder, the same one trained, and a language model as rows of one table of a real collection."""

import csv
import json
import shutil

import yaml
from building import build_here
from pytest import approx
from tiny_project import ROOT, put, run_here, snakemake

JUDGED, OTHERS = 120, 300  # judgements of each split, and abstracts beside the judged ones


def part_of(scifact, folder):
    """SciFact's first judgements, their abstracts and some others, which are encoded in seconds; the folder."""
    (folder / "qrels").mkdir(parents=True)
    shutil.copy(scifact / "queries.jsonl", folder)
    judged, others = set(), iter(range(OTHERS))
    for path in (scifact / "qrels").iterdir():
        lines = path.read_text().splitlines(keepends=True)[: JUDGED + 1]
        (folder / "qrels" / path.name).write_text("".join(lines))
        judged |= {line.split("\t")[1] for line in lines[1:]}
    with (scifact / "corpus.jsonl").open() as corpus, (folder / "corpus.jsonl").open("w") as part:
        part.writelines(
            line
            for line in corpus
            if json.loads(line)["_id"] in judged or next(others, None) is not None
        )
    return folder


def test_published_trained_and_asked_models_are_rows_of_scifact(real, language_model, tmp_path):
    """The language model is tiny and random: its row shows the way there, and no quality."""
    config = yaml.safe_load((ROOT / "config/small/scifact.yaml").read_text())
    config |= {"bm25": {"engine": "bm25s"}, "rerank": {"depth": 3}}
    config |= {"depth": {"train": 50, "test": 100}, "lengths": {"query": 24, "passage": 40}}
    put(
        config, ["datasets", "scifact", "path"], str(part_of(real("scifact"), tmp_path / "scifact"))
    )
    put(config, ["models", "de_bm25neg", "train", "steps"], 4)
    model = str(language_model("llama", max_position_embeddings=2048))
    config |= {
        "llm_rerankers": {
            "tiny": {"method": "yes_no", "form": "chat", "model": model, "unlikely_below": 0}
        }
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config | {"systems": ["bm25+tiny"]}))
    build_here(tmp_path, "published", "config.yaml")
    status, output = run_here(snakemake(tmp_path, ["published"]))
    assert status == 0, output
    with (tmp_path / "results/tables/published.csv").open() as file:
        values = {
            (row["system"], row["measure"]): float(row["value"]) for row in csv.DictReader(file)
        }
    ndcg = {system: value for (system, measure), value in values.items() if measure == "nDCG@10"}
    assert list(ndcg) == ["BM25", "Encoder, untrained", "DE w/ BM25 Neg", "tiny"]
    assert ndcg["BM25"] == approx(86.05, abs=0.5)  # 67.9 on all abstracts
    # of the first 40 tokens of each abstract
    assert ndcg["Encoder, untrained"] == approx(77.1, abs=2)
    assert ndcg["DE w/ BM25 Neg"] != ndcg["Encoder, untrained"]
    # the first three change places
    assert values["tiny", "R@100"] == approx(values["BM25", "R@100"])
    assert ndcg["tiny"] != ndcg["BM25"]
