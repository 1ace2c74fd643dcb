"""A published encoder, the same one trained, and a language model as rows of one table of a real collection."""

import csv

import yaml
from pytest import approx
from tiny_project import ROOT, put, said, snakemake


def test_published_trained_and_asked_models_are_rows_of_scifact(real, language_model, tmp_path):
    """The language model is tiny and random: its row shows the way there, and no quality."""
    config = yaml.safe_load((ROOT / "config/small/scifact.yaml").read_text())
    config |= {"bm25": {"engine": "bm25s"}, "rerank": {"depth": 3}}
    config |= {"depth": {"train": 50, "test": 100}, "lengths": {"query": 24, "passage": 40}}
    put(config, ["datasets", "scifact", "path"], str(real("scifact")))
    put(config, ["models", "de_bm25neg", "train", "steps"], 4)
    model = str(language_model("llama", max_position_embeddings=2048))
    config |= {"llm_rerankers": {"tiny": {"method": "yes_no", "form": "chat", "model": model}}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config | {"systems": ["bm25+tiny"]}))
    status, output = said(snakemake(tmp_path, ["published"]))
    assert status == 0, output
    with (tmp_path / "results/tables/published.csv").open() as file:
        values = {(row["system"], row["measure"]): float(row["value"]) for row in csv.DictReader(file)}
    ndcg = {system: value for (system, measure), value in values.items() if measure == "nDCG@10"}
    assert list(ndcg) == ["BM25", "Encoder, untrained", "DE w/ BM25 Neg", "tiny"]
    assert 60 < ndcg["BM25"] < 72  # 67.9 by Lucene
    assert 40 < ndcg["Encoder, untrained"] < 70  # of the first 40 tokens of each abstract
    assert ndcg["DE w/ BM25 Neg"] != ndcg["Encoder, untrained"]
    assert values["tiny", "R@100"] == approx(values["BM25", "R@100"])  # the first three change places
    assert ndcg["tiny"] != ndcg["BM25"]
