"""A collection without dev through Snakemake: dev is drawn, sizes follow from the data, the best system is named."""

import json
import re

import yaml
from tiny_project import LAYOUT, said, snakemake, tiny_config, write_beir

from tandem.config.loading import merged

BEST = {"best": {"of": ["bm25+ce_bm25neg", "rocketqav2.retriever+rocketqav2.reranker"], "depths": [2, 5]}}
KEYS = {
    "recipes": ["dureader_retrieval", "rocketqav2", "own_data"],
    "datasets": {"tiny": {"dev_from_train": 0.3}},
    "models": {name: {"train": {"budget_minutes": 1e-6}} for name in ("de_bm25neg", "ce_bm25neg", "rocketqav2")},
}


def manifests(folder, kind):
    """The manifests of a kind's artifacts."""
    return [json.loads(path.read_text()) for path in folder.glob(f"results/tiny/{kind}/*/stage.json")]


def test_sizes_follow_from_the_data_and_the_best_pipeline_stands_in_the_table(tmp_path, encoder_folder, documents):
    write_beir(tmp_path / "beir", documents)
    rows = [*LAYOUT["rows"], {"system": "Best on dev", "run": "best", "with": {"pipelines": BEST}}]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(LAYOUT | {"rows": rows}))
    config = merged(tiny_config(tmp_path, encoder_folder) | {"tables": [str(tmp_path / "tiny.yaml")]}, KEYS)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    status, output = said(snakemake(tmp_path, ("results/tables/tiny.csv",)))
    assert status == 0, output

    [chosen] = manifests(tmp_path, "choose_pipeline")
    assert (chosen["facts"]["systems"], chosen["params"]["split"]) == (6, "dev")
    sizes = [manifest["facts"]["sizes"] for manifest in manifests(tmp_path, "model") if "sizes" in manifest["facts"]]
    assert [(own["list_size"], own["steps"]) for own in sizes] == [(2, 1)] * 2  # nothing more fits into the budget
    text = (tmp_path / "results/tables/tiny.md").read_text().replace("\\", "")
    assert re.search(r"best.test: \S+: chosen of 6 by nDCG@10 on dev \(|best.test: \S+, the first [25] re-ranked", text)
