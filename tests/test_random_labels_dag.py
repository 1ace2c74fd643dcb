"""The whole graph on a collection whose training labels are random: starts are kept, and tables and report say so."""

import random
import shutil

import yaml
from tiny_project import TRAIN, Project, write_beir

SAID = (
    "ce_bm25neg: training did not help, its start is kept: dev nDCG@10",
    "ce_bm25neg: stays at chance",
    "de_bm25neg: ce_bm25neg, which judges, stays at chance: it denoises nothing",
)


def test_where_labels_are_random_the_start_is_kept_and_the_tables_say_so(encoder_folder, documents, tmp_path):
    project = Project(tmp_path, encoder_folder, documents)
    shutil.rmtree(tmp_path / "beir")
    write_beir(tmp_path / "beir", documents, ("train", "dev", "test"))
    qrels = tmp_path / "beir/qrels/train.tsv"
    head, *lines = (line.split("\t") for line in qrels.read_text().splitlines())
    docs = random.Random(3).sample([doc for _, doc, _ in lines], len(lines))
    rows = [head, *([query, doc, "1"] for (query, _, _), doc in zip(lines, docs, strict=True))]
    qrels.write_text("".join("\t".join(row) + "\n" for row in rows))
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    harmful = TRAIN | {"choose": "dev", "validate_every": 2, "lr": 0.5}
    config["models"]["de_bm25neg"]["train"] = harmful
    config["models"]["ce_bm25neg"]["train"] = harmful
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    code, output = project.run()
    assert code == 0, output
    for page in ("tables/tiny.md", "tables/tiny.html", "report.html"):
        text = (tmp_path / "results" / page).read_text()
        assert [line for line in SAID if line not in text.replace("\\", "")] == [], page
