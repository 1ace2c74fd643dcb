"""Formats are recognised by the names of their files, and files of one's own by words in theirs."""

import gzip
import json
import os
from pathlib import Path

import pytest
from file_formats import FORMATS, append, edit, replace
from tiny_project import ROOT

from tandem.errors import UserError
from tandem.extras.listing import FolderListing
from tandem.extras.recognition import find_entry
from tandem.extras.split_names import group_by_split, match_by_split
from tandem.plan.planner import Planners

SQUAD = (
    '{"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": "alpha", "qas": []}]}]}'
)
SEARCHED = '{"question_id": 1, "question": "?", "documents": [{"paragraphs": ["alpha"]}]}\n'


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
        )
    return folder


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        (["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], {"source": "beir"}),
        (["corpus.jsonl.gz", "queries.jsonl", "answers.jsonl"], {"source": "beir"}),
        (["para.txt", "para.title.txt", "dev.query.txt", "qrels.dev.tsv"], {"source": "rocketqa"}),
        (["dual.train.tsv"], {"source": "rocketqa_tsv", "dual": "dual.train.tsv"}),
        (
            ["dual.train.tsv", "cross.train.tsv"],
            {"source": "rocketqa_tsv", "dual": "dual.train.tsv", "cross": "cross.train.tsv"},
        ),
        (["question.csv", "answer.zip", "test_candidates.txt"], {"source": "cmedqa2"}),
        (
            ["psgs_w100.tsv.gz", "biencoder-nq-train.json", "nq-test.qa.csv"],
            {"source": "dpr", "questions": {"train": "biencoder-nq-train.json", "test": "nq-test.qa.csv"}},
        ),
        (["psgs_w100.tsv", "dataset/test/P36.test.json"], {"source": "entity_questions"}),
        (
            ["passage-collection/passage2id.map.json", "passage-collection/part-00", "dev/dev.json"],
            {"source": "dureader_retrieval"},
        ),
        (
            ["collection.tsv", "queries.tsv", "qrels.txt"],
            {
                "source": "files", "corpus": "collection.tsv", "queries": {"test": "queries.tsv"},
                "qrels": {"test": "qrels.txt"},
            },
        ),
        (  # numbers behind a split's word: judgements of a training are not those of a test
            ["corpus.tsv", "queries.train100k.tsv", "queries.dev2.tsv", "qrels_train1.txt", "qrels_dev2.txt"],
            {
                "source": "files", "corpus": "corpus.tsv",
                "queries": {"train": "queries.train100k.tsv", "dev": "queries.dev2.tsv"},
                "qrels": {"train": "qrels_train1.txt", "dev": "qrels_dev2.txt"},
            },
        ),
        (  # one file of queries serves all splits that have judgements
            ["docs.jsonl", "topics.tsv.gz", "qrels/train.txt", "qrels/valid.txt", "answers.jsonl", "README.txt"],
            {
                "source": "files", "corpus": "docs.jsonl", "queries": dict.fromkeys(("train", "dev"), "topics.tsv"),
                "qrels": {"train": "qrels/train.txt", "dev": "qrels/valid.txt"}, "answers": "answers.jsonl",
            },
        ),
        # whatever split the name of their file says: a hub's folders call all that has no splits `train`
        (
            ["corpus/train-00000.parquet", "queries/train-00000.parquet", "qrels/test-00000.parquet"],
            {
                "source": "files", "corpus": "corpus/train-00000.parquet",
                "queries": {"test": "queries/train-00000.parquet"}, "qrels": {"test": "qrels/test-00000.parquet"},
            },
        ),
        (["corpus.jsonl", "queries.jsonl", "qrels/test.jsonl"], {
            "source": "files", "corpus": "corpus.jsonl", "queries": {"test": "queries.jsonl"},
            "qrels": {"test": "qrels/test.jsonl"},
        }),
        (  # MTEB's datasets on the hub: their judgements have no name of their own
            ["corpus/corpus-0.parquet", "queries/queries-0.parquet", "default/test-0.parquet", "default/x.md"],
            {
                "source": "files", "corpus": "corpus/corpus-0.parquet",
                "queries": {"test": "queries/queries-0.parquet"}, "qrels": {"test": "default/test-0.parquet"},
            },
        ),
        (  # and one file of judgements all splits that have queries
            ["corpus-00.tsv", "corpus-01.tsv", "queries_train.tsv", "queries_test.tsv", "qrels"],
            {
                "source": "files", "corpus": "corpus-*.tsv", "qrels": dict.fromkeys(("train", "test"), "qrels"),
                "queries": {"train": "queries_train.tsv", "test": "queries_test.tsv"},
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_folder(tmp_path, files, entry):
    folder = put(tmp_path / "data", dict.fromkeys(files, "x"))
    assert find_entry([str(folder)]) == (entry, str(folder))


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        ({"train-v1.1.json": SQUAD, "dev-v1.1.json": SQUAD, "stats.json": "{}"},
         {"source": "squad", "files_of": {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}}),
        ({"xquad.en.json.gz": SQUAD}, {"source": "squad", "files_of": {"test": "xquad.en.json"}}),
        ({"search.dev.json": SEARCHED, "zhidao.dev.json": SEARCHED},
         {"source": "dureader2", "splits": {"dev": ["search.dev.json", "zhidao.dev.json"]}}),
    ],
    ids=["squad", "packed", "dureader2"],
)  # fmt: skip
def test_json_is_told_apart_by_its_beginning(tmp_path, files, entry):
    folder = put(tmp_path / "data", files)
    assert find_entry([str(folder)]) == (entry, str(folder))


def test_files_by_name_are_read_below_the_folder_that_they_share(tmp_path, monkeypatch):
    monkeypatch.chdir(put(tmp_path, {"a/corpus.tsv": "", "b/queries.tsv": "", "b/qrels.tsv": ""}))
    names = ["a/corpus.tsv", "b/queries.tsv", "b/qrels.tsv"]
    entry = {"corpus": names[0], "queries": {"test": names[1]}, "qrels": {"test": names[2]}}
    assert find_entry(names) == ({"source": "files", **entry}, ".")
    entry, folder = find_entry([str(tmp_path / "b/queries.tsv"), "a/corpus.tsv"])
    assert (entry["corpus"], folder) == ("a/corpus.tsv", str(tmp_path))


def test_ir_datasets_is_named_by_its_id():
    assert find_entry(["ir_datasets:beir/scifact"]) == (
        {"source": "ir_datasets", "id": "beir/scifact"},
        "",
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["queries.jsonl", "answers.jsonl"],
            r"no format is recognised \(found: answers.jsonl, queries.jsonl\); allowed: names with the words corpus, ",
        ),
        ([], r"no format is recognised \(found: nothing\)"),
        (
            ["corpus.jsonl", "qrels/test.tsv"],
            "queries.jsonl is missing beside corpus.jsonl and qrels/",
        ),
        (
            ["corpus.xls", "queries.xls", "qrels.xls"],
            r"found: corpus.xls, .* that end in .tsv, .txt, .csv, .jsonl",
        ),
        (
            ["corpus.tsv", "documents.tsv", "queries.tsv"],
            "corpus.tsv and documents.tsv are both taken for the passages",
        ),
        (
            ["corpus.tsv", "queries.a.tsv", "queries.b.tsv"],
            "queries.a.tsv and queries.b.tsv are both taken for split test",
        ),
    ],
)
def test_what_is_not_clear_is_one_line(tmp_path, files, message):
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=message) as error:
        find_entry([str(put(tmp_path / "data", dict.fromkeys(files, "")))])
    assert "\n" not in str(error.value)


def test_a_folder_with_the_results_in_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(
        put(tmp_path, dict.fromkeys(["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], ""))
    )
    with pytest.raises(
        UserError, match=r"--data \.: holds the working folder; put the data into one of its own"
    ):
        find_entry(["."])


def test_a_missing_file_and_two_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        FolderListing.of([tmp_path / "none"])
    with pytest.raises(UserError, match="a folder beside other data"):
        FolderListing.of([tmp_path, tmp_path])


def test_a_name_in_another_encoding_is_refused_if_it_is_read(tmp_path):
    """As in an archive of an old system: neither a configuration nor a key can hold it."""
    folder = put(tmp_path / "data", dict.fromkeys(["corpus.tsv", "queries.tsv", "qrels.tsv"], ""))
    (folder / os.fsdecode(b"fa\xe7ade.tsv")).write_text("")
    assert find_entry([str(folder)])[0]["corpus"] == "corpus.tsv"
    (folder / "corpus.tsv").rename(folder / os.fsdecode(b"corpus_fran\xe7ais.tsv"))
    with pytest.raises(UserError, match=r'"corpus_fran\\udce7ais.tsv": its name is not UTF-8'):
        find_entry([str(folder)])


def test_splits_are_words_of_a_name():
    assert group_by_split(["val.json", "Training_2.json", "contest.json"]) == {
        "train": ["Training_2.json"], "dev": ["val.json"], "test": ["contest.json"],
    }  # fmt: skip
    assert match_by_split([]) == {}


@pytest.mark.parametrize("name", FORMATS)
def test_a_dataset_changes_with_the_files_that_are_read_and_no_others(tmp_path, configured, name):
    folder = tmp_path / "data"
    for file, content in FORMATS[name].files.items():
        edit(folder, file, replace(content))
    config = configured("datasets.mine", {**FORMATS[name].params, "path": str(folder)})

    def key() -> str:
        return Planners(config, ROOT).base.dataset("mine").key

    before = key()
    put(folder, {"results/report.html": "x", "mine.yaml": json.dumps(config), "README.md": "notes"})
    assert key() == before
    for file in FORMATS[name].files:
        last = key()
        edit(folder, file, append(" "))
        assert key() != last, file


def test_another_split_of_a_folder_in_beirs_layout_changes_it(tmp_path, configured):
    for file, content in FORMATS["beir"].files.items():
        edit(tmp_path, file, replace(content))
    config = configured("datasets.mine", {**FORMATS["beir"].params, "path": str(tmp_path)})
    before = Planners(config, ROOT).base.dataset("mine").key
    put(tmp_path, {"qrels/dev.tsv": "q1\td1\t1\n"})
    assert Planners(config, ROOT).base.dataset("mine").key != before


def test_a_damaged_file_is_no_format(tmp_path):
    whole = gzip.compress(SQUAD.encode() * 50)
    (tmp_path / "a.json.gz").write_bytes(whole[:20] + b"\xff" * 20 + whole[40:])
    assert FolderListing.of([tmp_path]).head("a.json") == b""
