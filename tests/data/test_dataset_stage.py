import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from messages import unknown_documents

from tandem.config.datasets import DATASET_ENTRIES, dataset_format, entry_model
from tandem.config.references import parameters_of
from tandem.errors import UserError
from tandem.store.files import fingerprint


def queries(artifact):
    return [
        tuple(row.values()) for row in pq.read_table(artifact.path("queries.parquet")).to_pylist()
    ]


def qrels(artifact):
    return [
        tuple(row.values()) for row in pq.read_table(artifact.path("qrels.parquet")).to_pylist()
    ]


@pytest.mark.parametrize("source", [name for name in DATASET_ENTRIES if name in dataset_format])
def test_planning_and_stage_agree_on_the_files_that_a_source_reads(source):
    """Each takes their fingerprint by the entry that it knows; two fingerprints would be a change of the files."""
    planned, read = DATASET_ENTRIES[source], entry_model(dataset_format[source])
    for said in ("reads", "requires", "file_keys"):
        assert getattr(planned, said) == getattr(read, said)


def test_tables_facts_and_statistics_of_two_passages(beir, make):
    artifact = make("d", {"source": "beir"}, path=str(beir))
    assert pq.read_table(artifact.path("corpus.parquet")).to_pydict() == {
        "doc_id": ["d1", "d2"],
        "title": ["One", ""],
        "text": ["alpha beta", "gamma"],
    }
    assert queries(artifact) == [("q1", "alpha?", "train"), ("q2", "gamma?", "test")]
    assert qrels(artifact) == [("q1", "d1", 1, "train"), ("q2", "d2", 1, "test")]
    assert artifact.manifest.facts["passages"] == 2
    assert (
        artifact.manifest.facts["queries"]
        == artifact.manifest.facts["qrels"]
        == {"train": 1, "test": 1}
    )
    assert artifact.manifest.facts["warnings"] == []
    statistics = json.loads(artifact.path("statistics.json").read_text())
    # "One alpha beta" and "gamma" have 3 and 1 words
    assert statistics["passages"]["words"] == {"mean": 2.0, "median": 2.0, "p90": 2.8, "max": 3}
    assert statistics["splits"]["test"]["positives"] == {
        "mean": 1.0,
        "median": 1.0,
        "p90": 1.0,
        "max": 1,
    }


def test_the_same_source_gives_the_same_bytes(beir, make):
    first, other = (make(name, {"source": "beir"}, path=str(beir)) for name in ("a", "b"))
    assert first.manifest.files == other.manifest.files
    assert first.manifest.facts["checksum"] == other.manifest.facts["checksum"]


def test_files_that_have_changed_since_they_were_planned_are_refused(beir, make, tmp_path):
    """The key has the planned content: what was made of another would be found under it for ever."""
    planned = {"source": "beir", "fingerprint": fingerprint(beir)}
    make("same", planned, path=str(beir))
    with (beir / "qrels" / "test.tsv").open("a") as judgements:
        judgements.write("q2\td1\t1\n")
    with pytest.raises(UserError, match="has changed since this stage was planned"):
        make("changed", planned, path=str(beir))
    assert not list(tmp_path.glob("changed/*.parquet"))


def test_files_that_change_while_they_are_read_are_refused(beir, make, tmp_path, monkeypatch):
    def edit(source):
        (beir / "queries.jsonl").write_text("")
        return iter(())

    monkeypatch.setattr(dataset_format["beir"], "read_lists", edit)
    planned = {"source": "beir", "fingerprint": fingerprint(beir)}
    with pytest.raises(UserError, match="has changed since this stage was planned"):
        make("changed", planned, path=str(beir))
    assert not list(tmp_path.glob("changed/*.parquet"))


def test_titles_can_be_blanked(beir, make):
    artifact = make("d", {"source": "beir", "title": False}, path=str(beir))
    assert pq.read_table(artifact.path("corpus.parquet"))["title"].to_pylist() == ["", ""]
    assert json.loads(artifact.path("statistics.json").read_text())["passages"]["words"]["max"] == 2


def test_a_checksum_that_differs_is_a_warning_with_both(beir, make, capsys):
    right = make("a", {"source": "beir"}, path=str(beir)).manifest.facts["checksum"]
    assert (
        make("b", {"source": "beir"}, path=str(beir), checksum=right).manifest.facts["warnings"]
        == []
    )
    [warning] = make("c", {"source": "beir"}, path=str(beir), checksum="f00d").manifest.facts[
        "warnings"
    ]
    assert f"checksum is {right}, expected f00d" in warning
    assert warning in capsys.readouterr().err


def test_counts_that_differ_are_warnings_with_both(beir, make):
    right = {"passages": 2, "train": 1, "test": 1, "train_qrels": 1, "test_qrels": 1}
    assert (
        make("a", {"source": "beir"}, path=str(beir), counts=right).manifest.facts["warnings"] == []
    )
    wrong = {"passages": 8841823, "train": 3, "dev": 2, "test_qrels": 4, "pasages": 2}
    assert make(
        "b", {"source": "beir", "train_queries": 1}, path=str(beir), counts=wrong
    ).manifest.facts["warnings"] == [
        "2 passages, expected 8,841,823",
        "0 dev queries, expected 2",
        "1 test qrels, expected 4",
        "counts.pasages is neither passages nor a split; did you mean passages?",
    ]


@pytest.mark.parametrize("params", [{"near_duplicates": 0.9}, {"unknown_documents": "drop"}])
def test_labels_that_were_added_or_dropped_are_not_counted(beir, make, params):
    """The source has two labels of test: of a passage that stands twice, and of one that is not there."""
    with (beir / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "d3", "title": "", "text": "gamma"}\n')
    with (beir / "qrels" / "test.tsv").open("a") as qrels_file:
        qrels_file.write("q2\tgone\t1\n")
    made = make("a", {"source": "beir", **params}, path=str(beir), counts={"test_qrels": 2})
    assert not any("qrels, expected" in line for line in made.manifest.facts["warnings"])
    # three with near-duplicates, and one where what is not there is dropped
    assert made.manifest.facts["qrels"]["test"] == (3 if "near_duplicates" in params else 1)


def test_a_query_in_two_splits_takes_the_qrels_of_one(beir, make):
    (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t1\nq1\td2\t1\n")
    artifact = make("d", {"source": "beir"}, path=str(beir))
    assert qrels(artifact) == [("q1", "d2", 1, "dev"), ("q2", "d2", 1, "test")]
    assert artifact.manifest.facts["warnings"][0].startswith(
        "2 queries are judged in several splits"
    )


def test_what_is_dropped_is_counted(beir, make, capsys):
    with open(beir / "queries.jsonl", "a") as file:
        file.write('{"_id": "q3", "text": " \\t"}\n{"_id": "q4", "text": "nobody judged me"}\n')
    with open(beir / "qrels" / "train.tsv", "a") as file:
        file.write("q3\td1\t1\nq1\td1\t1\nq9\td1\t1\n")
    artifact = make("d", {"source": "beir"}, path=str(beir))
    assert [query for query, *_ in queries(artifact)] == ["q1", "q2"]
    assert artifact.manifest.facts["warnings"] == [
        "1 queries of the qrels are not among the queries; their qrels are dropped",
        "1 queries are blank and were dropped",
        "1 queries stand in no qrels and were dropped",
        "1 judgements repeat an earlier one and were dropped",
    ]
    assert capsys.readouterr().err.count("warning") == 4


def test_answers_to_unknown_questions_are_not_taken_for_qrels(beir, make):
    (beir / "answers.jsonl").write_text(
        '{"_id": "q1", "answers": ["a"]}\n{"_id": "q7", "answers": ["b"]}\n'
    )
    artifact = make("d", {"source": "beir"}, path=str(beir))
    assert artifact.manifest.facts["warnings"] == [
        "1 queries of the answers are not among the queries; their answers are dropped"
    ]


def test_unknown_documents_are_kept_dropped_or_refused(beir, make):
    with open(beir / "qrels" / "test.tsv", "a") as file:
        file.write("q2\tnone\t1\n")
    retained = make("a", {"source": "beir"}, path=str(beir))
    assert ("q2", "none", 1, "test") in qrels(retained)
    assert retained.manifest.facts["warnings"] == [unknown_documents(1)]
    dropped = make("b", {"source": "beir", "unknown_documents": "drop"}, path=str(beir))
    assert qrels(dropped) == [("q1", "d1", 1, "train"), ("q2", "d2", 1, "test")]
    with pytest.raises(
        UserError,
        match=r"test.tsv:3: 1 judgements name documents that the corpus lacks, the first none",
    ):
        make("c", {"source": "beir", "unknown_documents": "error"}, path=str(beir))


def test_subset_and_dev_of_real_numbers(beir, make):
    with (
        open(beir / "queries.jsonl", "a") as texts,
        open(beir / "qrels" / "train.tsv", "a") as train,
    ):
        for i in range(100, 300):
            texts.write(f'{{"_id": "{i}", "text": "query {i}"}}\n')
            train.write(f"{i}\td1\t1\n")
    params = {"source": "beir", "dev_from_train": 0.25, "train_queries": 50, "dev_queries": 20}
    artifact = make("d", params, path=str(beir))
    assert artifact.manifest.facts["queries"] == {"train": 50, "dev": 20, "test": 1}
    assert Counter(split for *_, split in qrels(artifact)) == {"train": 50, "dev": 20, "test": 1}
    ids = [query for query, *_ in queries(artifact)]
    assert ids == [query for query in ["q1", "q2", *map(str, range(100, 300))] if query in ids]


def append(name, text):
    def change(folder):
        with open(folder / name, "a", encoding="utf-8") as file:
            file.write(text)

    return change


def replace(name, text):
    return lambda folder: (folder / name).write_text(text)


BEIR_KEYS = ", ".join(sorted(parameters_of(DATASET_ENTRIES["beir"]).model_fields))
BAD = {
    "duplicate document": (
        append("corpus.jsonl", '{"_id": "d1", "text": "again"}\n'),
        {},
        "{0}/corpus.jsonl:3: document id 'd1' again, first at 1; every id must be unique",
    ),
    "duplicate query": (
        append("queries.jsonl", '{"_id": "q2", "text": "again"}\n'),
        {},
        "{0}/queries.jsonl:3: query id 'q2' again, first at 2; every id must be unique",
    ),
    "empty corpus": (
        replace("corpus.jsonl", ""),
        {},
        "{0}/corpus.jsonl: the corpus is empty; at least one passage is needed",
    ),
    "missing file": (
        lambda folder: (folder / "queries.jsonl").unlink(),
        {},
        "{0}: holds no queries.jsonl (plain or packed); put it there",
    ),
    "no qrels": (
        lambda folder: [path.unlink() for path in (folder / "qrels").iterdir()],
        {},
        "{0}: holds no qrels/<split>.tsv, packed or not; put it there",
    ),
    "broken JSON": (
        append("corpus.jsonl", '{"_id": "d3", \n'),
        {},
        "{0}/corpus.jsonl:3: not valid JSON, Expecting property name enclosed in double quotes at column 15;"
        " one JSON object a line is allowed",
    ),
    "no object": (
        append("queries.jsonl", "[]\n"),
        {},
        "{0}/queries.jsonl:3: a JSON list; one JSON object a line is allowed",
    ),
    "no text": (
        append("corpus.jsonl", '{"_id": "d3"}\n'),
        {},
        "{0}/corpus.jsonl:3: no text; a field named text or contents or content or body or passage or passage_text is"
        " needed",
    ),
    "half a pair": (
        append("corpus.jsonl", '{"_id": "d3", "text": "\\ud800"}\n'),
        {},
        "{0}/corpus.jsonl:3: text holds half of a surrogate pair; valid Unicode is needed",
    ),
    "white space in an id": (
        append("corpus.jsonl", '{"_id": "d 3", "text": "x"}\n'),
        {},
        "{0}/corpus.jsonl:3: document id 'd 3'; an id must not be empty or hold white space or a null character",
    ),
    "a null character in an id, where trec_eval takes it to end": (
        append("queries.jsonl", '{"_id": "q\\u00003", "text": "x"}\n'),
        {},
        "{0}/queries.jsonl:3: query id 'q\\x003'; an id must not be empty or hold white space or a null character",
    ),
    "blank query": (
        append("queries.jsonl", '{"_id": "q3", "text": ""}\n'),
        {"blank_queries": "error"},
        "{0}/queries.jsonl:3: query q3 is blank; give it text or set blank_queries: drop",
    ),
    "no query left": (
        replace("queries.jsonl", '{"_id": "q1", "text": ""}\n{"_id": "q2", "text": " "}\n'),
        {},
        "{0}/queries.jsonl: no query is left; a dataset needs at least one with text and qrels or answers",
    ),
    "qrels line": (
        append("qrels/test.tsv", "q2 d1 1\n"),
        {},
        "{0}/qrels/test.tsv:3: 1 columns by tabs; the header names 3",
    ),
    "contradiction": (
        append("qrels/test.tsv", "q2\td2\t0\n"),
        {},
        "{0}/qrels/test.tsv:3: query q2 judges document d2 both 1 and 0; one is allowed",
    ),
    "most documents unknown": (
        replace("qrels/test.tsv", "q2\td2\t1\nq2\td3\t1\nq2\td4\t1\n"),
        {},
        "{0}/qrels/test.tsv:2: 2 of 3 judgements of split test name documents that the corpus lacks, the first d3;"
        " mend them, or set unknown_documents: drop",
    ),
    "most queries unknown": (
        replace("qrels/test.tsv", "q2\td2\t1\nq3\td2\t1\nq4\td2\t1\n"),
        {},
        "{0}/qrels/test.tsv:2: 2 of 3 judgements of split test name queries that {0}/queries.jsonl lacks,"
        " the first q3; mend the order of their columns, or give their queries",
    ),
    "columns without a header in the wrong order": (
        replace("qrels/test.tsv", "d2\tq2\t1\n"),
        {},
        "{0}/qrels/test.tsv:1: 1 of 1 judgements of split test name queries that {0}/queries.jsonl lacks,"
        " the first d2; mend the order of their columns, or give their queries",
    ),
    "a header with an unknown name": (
        replace("qrels/test.tsv", "query-id\tcorpus-id\trating\nq2\td2\t1\n"),
        {},
        "{0}/qrels/test.tsv:1: no relevance; a field named relevance or score or rel or label is needed",
    ),
    "no positive": (
        replace("qrels/test.tsv", "q2\td2\t0\nq2\td1\t0.0\n"),
        {},
        "qrels: none of the 2 judgements of split test is above 0; a split needs a relevant passage",
    ),
    "half a grade": (
        append("qrels/test.tsv", "q2\td1\t0.5\n"),
        {},
        "{0}/qrels/test.tsv:3: relevance is '0.5'; a whole number is needed",
    ),
    "a date as grade": (
        append("qrels/test.tsv", "q2\td1\t20240131\n"),
        {},
        "{0}/qrels/test.tsv:3: relevance is 20,240,131; at most 1,000 is allowed, is it another column?",
    ),
    "upper case": (
        lambda folder: (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "Test.tsv"),
        {},
        "{0}/qrels/Test.tsv: a split's judgements are <split>.tsv, packed or not, in lower case; rename or remove it",
    ),
    "another end": (
        lambda folder: (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "test.txt"),
        {},
        "{0}/qrels/test.txt: a split's judgements are <split>.tsv, packed or not, in lower case; rename or remove it",
    ),
    "an id that is null": (
        append("queries.jsonl", '{"_id": null, "text": "x"}\n'),
        {},
        "{0}/queries.jsonl:3: id is null; a text is needed",
    ),
    "no id": (
        append("queries.jsonl", '{"text": "x"}\n'),
        {},
        "{0}/queries.jsonl:3: no id; a field named _id or id or query_id or query-id or qid is needed",
    ),
    "lines of an old Mac": (
        replace("qrels/test.tsv", "query-id\tcorpus-id\tscore\rq2\td2\t1\r"),
        {},
        "{0}/qrels/test.tsv: its lines end in carriage returns alone, as on an old Mac; end them in line feeds",
    ),
    "unknown source": (
        lambda folder: None,
        {"source": "trec"},
        f"source: 'trec' is unknown; allowed are {', '.join(sorted(dataset_format))}",
    ),
    "wrong policy": (
        lambda folder: None,
        {"unknown_documents": "ignore"},
        'dataset: --params.unknown_documents is "ignore"; allowed: warn, drop, error',
    ),
    "wrong number": (
        lambda folder: None,
        {"train_queries": 0},
        "dataset: --params.train_queries is 0; allowed: ≥ 1",
    ),
    "unknown key": (
        lambda folder: None,
        {"packages": ["numpy"]},
        f"packages is not a known key; allowed: {BEIR_KEYS}",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(name, beir, make, tmp_path):
    change, params, message = BAD[name]
    change(beir)
    with pytest.raises(UserError) as error:
        make("d", {"source": "beir", **params}, path=str(beir))
    assert str(error.value) == message.format(beir)
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]


def test_not_utf8_is_named_by_its_line(beir, make):
    with open(beir / "corpus.jsonl", "ab") as file:
        file.write(b'{"_id": "d3", "text": "caf\xe9"}\n')
    with pytest.raises(
        UserError,
        match=r"corpus.jsonl:3: not UTF-8, invalid continuation byte at byte 27 of the line; convert the file",
    ):
        make("d", {"source": "beir"}, path=str(beir))


def test_a_folder_is_needed(make):
    with pytest.raises(UserError, match=r"^path: missing; name the folder"):
        make("d", {"source": "beir"})
    with pytest.raises(UserError, match=r"^/no/where: no such folder;"):
        make("d", {"source": "beir"}, path="/no/where")


def test_one_bad_line_among_many_is_named_and_leaves_nothing(beir, make, tmp_path):
    many = [f'{{"_id": "p{number}", "text": "passage {number}"}}\n' for number in range(120_000)]
    many[77_776] = '{"_id": "p77776", "text": "passage\n'
    (beir / "corpus.jsonl").write_text("".join(many))
    with pytest.raises(UserError, match=r"corpus\.jsonl:77777: not valid JSON"):
        make("many", {"source": "beir"}, path=str(beir))
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
