import json

from tandem.data.collection import Collection


def test_scifact_has_its_published_counts(make, real):
    made = make("scifact", {"source": "beir"}, path=str(real("scifact")))
    assert made.manifest.facts["passages"] == 5183
    assert made.manifest.facts["queries"] == {"train": 809, "test": 300}
    assert made.manifest.facts["qrels"] == {"train": 919, "test": 339}
    assert made.manifest.facts["warnings"] == []
    assert len(Collection(made).queries("train")) == 809


def test_cacm_counts_its_55_unknown_documents(make, real):
    made = make("cacm", {"source": "beir"}, path=str(real("cacm-raw")))
    assert made.manifest.facts["qrels"] == {"test": 796}
    assert (
        "55 judgements name documents that the corpus lacks and are kept: no run can find them"
        in made.manifest.facts["warnings"]
    )


def test_cmrc_loses_its_two_blank_queries(make, real):
    made = make("cmrc", {"source": "beir"}, path=str(real("cmrc2018")))
    assert "2 queries are blank and were dropped" in made.manifest.facts["warnings"]


def test_lines_end_at_line_feeds_only(beir, make):
    text = "one\u2028two\u0085three\x0cfour\rfive"
    (beir / "corpus.jsonl").write_text(json.dumps({"_id": 7, "title": None, "text": text}, ensure_ascii=False) + "\n")
    made = make("d", {"source": "beir"}, path=str(beir))
    assert Collection(made).texts(["7"]) == {"7": ("", text)}
