import zipfile

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError

FILES = {
    "question.csv": 'question_id,content\n1,头疼怎么办？\n2,"能吃药, 吗？"\n3,发烧"低烧"呢？\n',
    "answer.csv": "ans_id,question_id,content\n11,1,多喝水。\n"
    '12,1,"他说""休息""。\n第二行"\n21,2,可以。\n31,3,去医院。\n',
    "train_candidates.txt": "question_id,pos_ans_id,neg_ans_id\n1,11,21\n1,11,31\n1,12,21\n1,12,11\n",
    "dev_candidates.txt": "question_id,ans_id,cnt,label\n2,21,0,1\n2,11,1,0\n",
    "test_candidates.txt": "question_id,ans_id,cnt,label\n3,11,0,0\n3,31,1,1\n",
}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "cmedqa2"
    root.mkdir()
    for name, content in FILES.items():
        (root / name).write_text(content)
    return root


def pack(path, *others):
    """Put a file into the zip archive of its name, beside other members."""
    with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, path.name)
        for name in others:
            archive.writestr(name, "x")
    path.unlink()
    return path.with_suffix(".zip")


@pytest.mark.parametrize("packed", [False, True])
def test_all_answers_are_the_corpus_and_candidates_the_splits(packed, folder, make):
    for path in list(folder.iterdir()) if packed else []:
        pack(path, "__MACOSX/._" + path.name)
    collection = Collection(make("d", {"source": "cmedqa2"}, path=str(folder)))
    assert pq.read_table(collection.artifact.path("corpus.parquet")).to_pydict() == {
        "doc_id": ["11", "12", "21", "31"],
        "title": [""] * 4,
        "text": ["多喝水。", '他说"休息"。\n第二行', "可以。", "去医院。"],
    }
    assert collection.queries("train") == {"1": "头疼怎么办？"}
    assert collection.queries("dev") == {"2": "能吃药, 吗？"}
    assert collection.queries("test") == {"3": '发烧"低烧"呢？'}
    assert collection.qrels("train") == {"1": {"11": 1, "12": 1}}
    assert collection.qrels("dev") == {"2": {"21": 1}}  # label 0: drawn at random, not judged
    assert collection.qrels("test") == {"3": {"31": 1}}
    assert collection.artifact.manifest.facts["warnings"] == []


def test_training_lists_hold_each_positive_and_negative_once(folder, make):
    collection = Collection(make("d", {"source": "cmedqa2"}, path=str(folder)))
    # 11 is a negative in the last line, but a positive of the same question
    assert list(collection.lists()) == [
        ("1", [("11", 1, None), ("12", 1, None), ("21", 0, None), ("31", 0, None)])
    ]


def test_without_train_candidates_there_are_no_lists(folder, make):
    (folder / "train_candidates.txt").unlink()
    collection = Collection(make("d", {"source": "cmedqa2"}, path=str(folder)))
    assert collection.artifact.manifest.facts["lists"] == 0
    assert collection.artifact.manifest.facts["queries"] == {"dev": 1, "test": 1}


def change(name, old, new):
    def changed(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return changed


WRONG = {
    "a column is missing": (
        change("answer.csv", "ans_id", "answer"),
        "{0}/answer.csv:1: no column ans_id; the header must name ans_id, content",
    ),
    "too few columns": (
        change("answer.csv", "31,3,", "31,"),
        "{0}/answer.csv:6: 2 columns by commas; the header names 3",
    ),
    "an open quote": (
        change("answer.csv", '行"', "行"),
        "{0}/answer.csv:3: no valid CSV, unexpected end of data; a text with commas or line ends stands in quotes,"
        " quotes inside doubled",
    ),
    "a label": (
        change("test_candidates.txt", "1,1\n", "1,yes\n"),
        "{0}/test_candidates.txt:3: label is 'yes'; 0 and 1 are allowed",
    ),
    "a question twice": (
        change("train_candidates.txt", "1,12,11\n", "2,21,11\n1,12,11\n"),
        "lists: query 1 again; the rows of a query must stand together",
    ),
    "no candidates": (
        lambda folder: [path.unlink() for path in folder.glob("*.txt")],
        "{0}: holds no candidates; at least one of train_candidates, dev_candidates, test_candidates is needed",
    ),
    "an archive of two files": (
        lambda folder: pack(folder / "answer.csv", "notes.txt"),
        "{0}/answer.zip: zip file holds 2 files, one is allowed; name it as path, or unpack it",
    ),
    "a truncated archive": (
        lambda folder: truncate(pack(folder / "answer.csv")),
        "{0}/answer.zip: zip file is truncated or broken; fetch it again",
    ),
}


def truncate(path):
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_one_line(name, folder, make, tmp_path):
    spoil, message = WRONG[name]
    spoil(folder)
    with pytest.raises(UserError) as error:
        make("d", {"source": "cmedqa2"}, path=str(folder))
    assert str(error.value) == message.replace("{0}", str(folder))
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
