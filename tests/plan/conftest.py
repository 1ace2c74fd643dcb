"""What the tests of planning share."""

import json

import pytest
from tiny_project import put


@pytest.fixture(scope="session")
def overridden():
    """`overridden(config, {a/b/c: value, …})`: the configuration with these keys set; names may hold dots."""

    def override(config: dict, keys: dict) -> dict:
        for path, value in keys.items():
            put(config, path.split("/"), value)
        return config

    return override


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BEIR folder with qrels of three splits."""
    at = tmp_path_factory.mktemp("beir")
    (at / "qrels").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl"):
        (at / file).write_text(json.dumps({"_id": "x", "text": "x"}) + "\n")
    for split in ("train", "dev", "test"):
        (at / "qrels" / f"{split}.tsv").write_text("x\tx\t1\n")
    return str(at)
