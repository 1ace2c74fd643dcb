"""What the tests of planning share."""

import json

import pytest


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
