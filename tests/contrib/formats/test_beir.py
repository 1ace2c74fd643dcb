import json

import pyarrow.parquet as pq
from messages import unknown_documents

from tandem.data.collection import Collection


def test_scifact_has_its_published_counts(make, real):
    artifact = make("scifact", {"source": "beir"}, path=str(real("scifact")))
    assert artifact.manifest.facts["passages"] == 5183
    assert artifact.manifest.facts["queries"] == {"train": 809, "test": 300}
    assert artifact.manifest.facts["qrels"] == {"train": 919, "test": 339}
    (warning,) = artifact.manifest.facts["warnings"]
    assert warning.startswith("1 passages not in Unicode's form NFC: ")
    assert len(Collection(artifact).queries("train")) == 809


def test_cacm_counts_its_55_unknown_documents(make, real):
    artifact = make("cacm", {"source": "beir"}, path=str(real("cacm-raw")))
    assert artifact.manifest.facts["qrels"] == {"test": 796}
    assert unknown_documents(55) in artifact.manifest.facts["warnings"]


def test_cmrc_loses_its_two_blank_queries(make, real):
    artifact = make("cmrc", {"source": "beir"}, path=str(real("cmrc2018")))
    assert "2 queries are blank and were dropped" in artifact.manifest.facts["warnings"]


def test_lines_end_at_line_feeds_only(beir, make):
    text = "one\u2028two\u0085three\x0cfour\rfive"
    with open(beir / "corpus.jsonl", "a") as corpus:
        corpus.write(json.dumps({"_id": 7, "title": None, "text": text}, ensure_ascii=False) + "\n")
    artifact = make("d", {"source": "beir"}, path=str(beir))
    assert Collection(artifact).texts(["7"]) == {"7": ("", text)}


def test_the_header_of_qrels_decides_the_order_of_their_columns(beir, make):
    usual = pq.read_table(make("a", {"source": "beir"}, path=str(beir)).path("qrels.parquet"))
    (beir / "qrels" / "test.tsv").write_text("corpus-id\tquery-id\tscore\nd2\tq2\t1\n")
    assert (
        pq.read_table(make("b", {"source": "beir"}, path=str(beir)).path("qrels.parquet")) == usual
    )


def test_grades_may_be_written_as_fractions_and_those_below_0_are_reported(beir, make):
    (beir / "qrels" / "test.tsv").write_text("q2\td2\t1.0\n")
    (beir / "qrels" / "train.tsv").write_text("q1\td1\t2\nq1\td2\t-1\n")
    artifact = make("a", {"source": "beir"}, path=str(beir))
    assert (Collection(artifact).qrels("test"), Collection(artifact).qrels("train")) == (
        {"q2": {"d2": 1}},
        {"q1": {"d1": 2, "d2": -1}},
    )
    assert artifact.manifest.facts["warnings"] == [
        "1 judgements are below 0 and count as not relevant"
    ]
    (beir / "qrels" / "train.tsv").write_text("q1\td1\t2\nq1\td2\t-2\n")
    assert make("b", {"source": "beir"}, path=str(beir)).manifest.facts["warnings"] == [
        "1 judgements are -2: their passages are neither relevant nor ever taken as negatives"
    ]
