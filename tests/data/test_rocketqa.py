import gzip
from pathlib import Path

import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError

FILES = {
    "para.txt": "0\tThe otter floats.\n1\tThe heron wades.\n2\tIt eats crabs.\n3\t\n",
    "para.title.txt": "0\tOtter\n1\t-\n2\tFood of otters\n3\tMole\n",
    "train.query.txt": "7\twhat floats\n8\twho wades\n9\twhat is eaten\n",
    "dev.query.txt": "5\twhat eats crabs\n",
    "train.query.txt.format": "what floats\t-\t-\t0\n",
    "qrels.train.tsv": "7\t0\n8\t1\n",
    "qrels.dev.tsv": "5\t2\n",
    "qrels.train.addition.tsv": "7\t2\n8\t1\n7\t0\n7\t2\n9\t2\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """RocketQA's layout with four passages, three training queries and one for dev."""
    root = tmp_path / "marco"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


def test_all_files_of_the_layout(folder, make):
    dataset = make("marco", {"source": "rocketqa"}, path=str(folder))
    collection = Collection(dataset)
    assert collection.texts("0123") == {
        "0": ("Otter", "The otter floats."),
        "1": ("", "The heron wades."),
        "2": ("Food of otters", "It eats crabs."),
        "3": ("Mole", ""),
    }
    assert collection.queries("train") == {
        "7": "what floats",
        "8": "who wades",
        "9": "what is eaten",
    }
    assert collection.queries("dev") == {"5": "what eats crabs"}
    # A literal match that is gold stays gold; another is -2 and thereby no positive of any measure.
    assert collection.qrels("train") == {"7": {"0": 1, "2": -2}, "8": {"1": 1}, "9": {"2": -2}}
    assert collection.qrels("dev") == {"5": {"2": 1}}
    assert dataset.manifest.facts["source"] == {"literal_matches": 2, "without_title": 1}
    assert "lists.parquet" not in dataset.manifest.files


def test_titles_off_need_no_titles(folder, make):
    (folder / "para.title.txt").write_text("no titles here")
    dataset = make("untitled", {"source": "rocketqa", "title": False}, path=str(folder))
    assert {title for title, _ in Collection(dataset).texts("0123").values()} == {""}
    (folder / "para.title.txt").unlink()
    without = make("without", {"source": "rocketqa"}, path=str(folder))
    assert without.manifest.facts["source"]["without_title"] == 4
    assert without.manifest.facts["checksum"] == dataset.manifest.facts["checksum"]


def test_the_original_four_columns_and_gzip(folder, make):
    plain = make("plain", {"source": "rocketqa"}, path=str(folder)).manifest.facts["checksum"]
    (folder / "qrels.train.tsv").write_text("7\t0\t0\t1\n8\t0\t1\t1\n")
    for name in FILES:
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    assert (
        make("packed", {"source": "rocketqa"}, path=str(folder)).manifest.facts["checksum"] == plain
    )


def test_a_plain_file_is_read_where_a_packed_copy_lies_beside_it(folder, make):
    for name, text in FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.replace("what", "which").encode()))
    dataset = make("both", {"source": "rocketqa"}, path=str(folder))
    assert Collection(dataset).queries("train")["7"] == "what floats"


def test_natural_questions_have_answers_instead_of_qrels(folder, make):
    for name in ("qrels.train.tsv", "qrels.dev.tsv", "qrels.train.addition.tsv", "dev.query.txt"):
        (folder / name).unlink()
    (folder / "test.query.txt").write_text("0\twho is it\n1\twhen was it\n")
    (folder / "test.answers.txt").write_text("0\tAda Lovelace\tAda King.\n1\t1815\t\n")
    dataset = make("nq", {"source": "rocketqa"}, path=str(folder))
    assert dataset.manifest.facts["queries"] == {"train": 3, "test": 2}
    assert Collection(dataset).answers("test") == {
        "0": ["Ada Lovelace", "Ada King."],
        "1": ["1815"],
    }


BAD = {
    "another order of titles": (
        {"para.title.txt": "1\t-\n0\tOtter\n2\tFood\n3\tMole\n"},
        "para.txt:1: passage 0, but {folder}/para.title.txt:1 is the title of 1",
    ),
    "too few titles": (
        {"para.title.txt": "0\tOtter\n"},
        "para.txt:2: passage 1, but {folder}/para.title.txt has ended",
    ),
    "too many titles": (
        {"para.title.txt": FILES["para.title.txt"] + "4\tToad\n"},
        "para.title.txt:5: the title of passage 4, but {folder}/para.txt has no line left for it",
    ),
    "a tab in a passage": (
        {"para.txt": "0\ta\tb\n"},
        "para.txt:1: 3 columns by tabs; a line is passage id, text",
    ),
    "a query without text": ({"dev.query.txt": "5\n"}, "dev.query.txt:1: 1 columns by tabs"),
    "three columns of qrels": (
        {"qrels.dev.tsv": "5\t2\n5\t0\t2\n"},
        "qrels.dev.tsv:2: 3 columns by tabs",
    ),
    "a relevance in words": (
        {"qrels.dev.tsv": "5\t0\t2\tyes\n"},
        "qrels.dev.tsv:1: relevance is 'yes'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_is_named(folder, make, name):
    files, message = BAD[name]
    for file, text in files.items():
        (folder / file).write_text(text)
    with pytest.raises(UserError) as error:
        make("bad", {"source": "rocketqa"}, path=str(folder))
    assert str(error.value).startswith(f"{folder}/{message.format(folder=folder)}")
    assert not (folder.parent / "results" / "bad" / "stage.json").exists()


def test_a_folder_that_judges_nothing_is_refused(folder, make):
    for name in ("qrels.train.tsv", "qrels.dev.tsv"):
        (folder / name).unlink()
    with pytest.raises(UserError, match=r"neither qrels\.<split>\.tsv nor <split>\.answers\.txt"):
        make("bad", {"source": "rocketqa"}, path=str(folder))
