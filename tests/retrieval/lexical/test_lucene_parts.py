"""An index that three shards have made in six parts gives the same runs as one that was made whole."""

import random

import pytest

from tandem.store.artifact import open_artifact

INDEX = {"analyzer": "default", "language": "en", "vectors": True, "fields": True}
BM25 = {"k1": 0.9, "b": 0.4, "depth": 12, "split": "test"}
RM3 = {"fb_terms": 5, "fb_docs": 4, "original_query_weight": 0.5}
SEARCHES = {"plain": {}, "rm3": {"rm3": RM3}, "fields": {"fields": {"title": 2.0, "text": 1.0}}}
RUN = """
import json, sys
from dataclasses import replace
from tandem.stages import KINDS
from tandem.stages.base import Part
from tandem.store.job import load, read_job, run_shard

task = json.load(sys.stdin)
KINDS["lucene"] = replace(KINDS["lucene"], part=Part(task["part"], "passages"))
for kind, *words in task["lines"]:
    load(KINDS[kind].run)(read_job(kind, words)) if kind in KINDS else run_shard(kind, words)
print("null")
"""


@pytest.fixture
def documents():
    """47 passages of 3 to 40 words, each fifth one with the text of the first: ties, in every part."""
    rng = random.Random(1)
    vocabulary = [
        "otter",
        "heron",
        "bat",
        "river",
        "swims",
        "dives",
        "stands",
        *(f"word{i}" for i in range(30)),
    ]
    texts = [" ".join(rng.choices(vocabulary, k=rng.randint(3, 40))) for _ in range(47)]
    return [
        (f"d{i}", "otter" if i % 3 else "", texts[0] if i % 5 == 0 else text)
        for i, text in enumerate(texts)
    ]


def test_parts_that_are_put_together_search_as_one_index(
    words, in_java, make_dataset_of, documents, tmp_path
):
    make_dataset_of(
        documents, {"q": "otter river", "r": f"{documents[0][2]} heron", "s": "word3 word4 bat"}
    )
    dataset = {"dataset": "dataset"}
    whole = [words("lucene", "whole", INDEX, dataset)]
    shards = [
        words("lucene-shard", "parts/shards", INDEX, dataset, {"shard": i, "shards": 3})
        for i in (2, 0, 1)
    ]
    joined = [*shards, words("lucene", "parts", INDEX, dataset)]
    for name, lines, part in (("whole", whole, 100), ("parts", joined, 8)):
        inputs = dataset | {"lucene": name}
        searches = [
            words("bm25", f"{name}-{how}", BM25 | own, inputs) for how, own in SEARCHES.items()
        ]
        in_java(RUN, {"lines": [*lines, *searches], "part": part})
    for how in SEARCHES:
        reference, other = (
            (tmp_path / f"{name}-{how}/run.trec").read_bytes().splitlines()
            for name in ("whole", "parts")
        )
        assert len(reference) == 36
        assert [line.split()[:5] for line in reference] == [line.split()[:5] for line in other]
    facts = [open_artifact(tmp_path / name).manifest.facts for name in ("whole", "parts")]
    assert facts[0] == facts[1]
    assert not (tmp_path / "parts/work").exists()
    assert not (tmp_path / "parts/index/write.lock").exists()
