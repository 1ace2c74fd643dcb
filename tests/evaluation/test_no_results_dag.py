"""Systems that find nothing for any query count as 0, whatever they are made of; the others of the table stand."""

import csv
import json
import re

import pytest
import yaml
from building import build_in
from tiny_project import run_here, snakemake
from tiny_sparse import masked_lm_folder
from transformers import BertForSequenceClassification, BertTokenizer

CORPUS = {
    "otter": "otters float on their backs",
    "badger": "badgers dig setts",
    "bat": "bats hear their echo",
}
# no term of any passage
QUERIES = {
    "otter": "水獺怎樣漂浮",
    "badger": "獾挖什麼",
    "bat": "蝙蝠聽到什麼",
}
SILENT = (
    "bm25",
    "java",
    "tuned",
    "expanded",
    "silent",
    "neither",
    "sums",
    "tuned_sums",
    "bm25+judge",
    "best",
    "windows",
    "window_judge",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder):
    """A folder where every system but the dual encoder and what is fused with it finds nothing."""
    folder = tmp_path_factory.mktemp("silent")
    tokenizer = BertTokenizer.from_pretrained(encoder_folder)
    BertForSequenceClassification.from_pretrained(encoder_folder, num_labels=1).save_pretrained(
        folder / "judge"
    )
    tokenizer.save_pretrained(folder / "judge")
    masked_lm_folder(folder / "mlm", encoder_folder, bias=-1000.0)  # every weight of a term is 0
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    lines = [{"_id": name, "title": "", "text": text} for name, text in CORPUS.items()]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    splits = ("train", "dev", "test")
    lines = [
        {"_id": f"{split}-{name}", "text": text}
        for split in splits
        for name, text in QUERIES.items()
    ]
    (beir / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split in splits:
        judged = "".join(f"{split}-{name}\t{name}\t1\n" for name in CORPUS)
        (beir / f"qrels/{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    rows = [{"system": name, "run": name} for name in (*SILENT, "encoder", "rrf")]
    layout = {
        "title": "Mixed",
        "baseline": {"system": "bm25"},
        "columns": [{"measure": "RR@10"}],
        "rows": rows,
    }
    (folder / "mixed.yaml").write_text(yaml.safe_dump(layout))
    config = {
        "dataset": "tiny",
        "datasets": {
            "tiny": {"source": "beir", "path": str(beir)},
            "cut": {"source": "windows", "of": "tiny", "length": 3, "stride": 2},
        },
        "encoder": "own",
        "encoders": {
            "own": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"},
            "silent": {
                "source": "folder",
                "path": str(folder / "mlm"),
                "pooling": "max",
                "representation": "sparse",
            },
        },
        "recipes": [],
        "models": dict.fromkeys(("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")),
        "tables": [str(folder / "mixed.yaml")],
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 16, "precision": "fp32"},
        "rerank": {"depth": 5, "precision": "fp32"},
        "rerankers": {"judge": {"source": "folder", "path": str(folder / "judge")}},
        "bm25": {"engine": "bm25s", "tune": {"k1": [0.9, 1.2], "b": [0.4]}},
        "sparse": {
            "java": {"engine": "lucene"},
            "expanded": {"engine": "lucene", "rm3": {"fb_terms": 2, "fb_docs": 1}},
            "tuned": {"tuned": True},
        },
        "fusions": {
            "rrf": {"of": ["bm25", "encoder"]},
            "neither": {"of": ["bm25", "java"]},
            "sums": {"of": ["bm25", "java"], "method": "weighted", "weights": [1, 2]},
            "tuned_sums": {"of": ["bm25", "java"], "method": "weighted"},
        },
        "pipelines": {"best": {"of": ["bm25", "bm25+judge"]}},
        "aggregations": {
            "windows": {"of": "bm25", "windows": "cut"},
            "window_judge": {"of": "bm25", "by": "judge", "windows": "cut"},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_a_system_without_any_result_counts_as_0_and_the_table_says_so(project):
    build_in(project, "all", "config.yaml")
    status, output = run_here(snakemake(project, []))
    assert status == 0, output
    with open(project / "results/tables/mixed.csv") as table:
        values = {row["system"]: float(row["value"]) for row in csv.DictReader(table)}
    assert {name: values[name] for name in SILENT} == dict.fromkeys(SILENT, 0.0)
    assert values["encoder"] == values["rrf"] > 0
    for page in ("tables/mixed.md", "tables/mixed.html", "report.html"):
        text = (project / "results" / page).read_text().replace("\\", "")
        for name in SILENT:
            assert f"score {name}.test: none of the 3 queries has a result" in text, page
        assert "score encoder" not in text
        for name in ("tune_bm25 tuned", "tune_fusion tuned_sums", "choose_pipeline best"):
            assert re.search(rf"{name}\S*: \S+ on dev is 0 for all", text), (page, name)
