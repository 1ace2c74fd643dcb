"""A collection without training queries: what needs none is planned, and the rest is named."""

import yaml
from tiny_project import LAYOUT, jobs, said, snakemake, tiny_config, write_beir


def test_bm25_and_the_untrained_encoder_are_made_and_the_models_are_named(tmp_path, encoder_folder, documents):
    write_beir(tmp_path / "beir", documents, splits=("test",))
    untrained = {"system": "Encoder, untrained", "run": "encoder"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(LAYOUT | {"rows": [*LAYOUT["rows"], untrained]}))
    config = tiny_config(tmp_path, encoder_folder) | {"tables": [str(tmp_path / "tiny.yaml")], "encoder": "tiny"}
    config["encoders"] = {"tiny": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    status, output = said(snakemake(tmp_path, ("-n",)))
    assert status == 0, output
    assert jobs(output).keys() >= {"bm25", "untrained", "retrieve", "score", "table", "report"}
    assert "train" not in jobs(output)
    [line] = [line for line in output.splitlines() if line.startswith("tiny lacks ")]
    assert line.startswith("tiny lacks Retriever, Re-ranker on Retriever: models.")
    assert line.endswith(": is trained on split train, but dataset tiny has test; name another dataset with train_on")
    assert output.splitlines()[-1].startswith("This was a dry-run")
