import gzip
import json

import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError

FILES = {
    "dataset/test/P36.test.json": [
        {"question": "What is the capital of Hesse?", "answers": ["Wiesbaden"]},
        {"question": "What is the capital of Loiret?", "answers": ["Orl\u00e9ans", "Orleans"]},
    ],
    "dataset/test/P106.test.json": [
        {"question": "What does Ada do?", "answers": ["mathematician"]}
    ],
    "dataset/train/P36.train.json.gz": [
        {"question": "What is the capital of Ter?", "answers": ["Girona"]}
    ],
    "dataset/one-off/P36/P36.test.json": [{"question": "left out", "answers": ["x"]}],
    "dataset/one-off/P36.test.json": [{"question": "left out", "answers": ["x"]}],
    "dataset/test/P36.test.jsonl": "left out",
}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "eq"
    for name, records in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(records, indent=4).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (root / "psgs_w100.tsv").write_text("id\ttext\ttitle\n1\tWiesbaden is a town\tHesse\n")
    return root


def test_questions_of_all_relations_by_split(folder, make):
    dataset = make("eq", {"source": "entity_questions"}, path=str(folder))
    collection = Collection(dataset)
    assert dataset.manifest.facts["queries"] == {"train": 1, "test": 3}
    assert dataset.manifest.facts["qrels"] == {"train": 0, "test": 0}
    # Relations by number: P36 before P106.
    assert list(collection.queries("test").items()) == [
        ("test-P36-0", "What is the capital of Hesse?"),
        ("test-P36-1", "What is the capital of Loiret?"),
        ("test-P106-0", "What does Ada do?"),
    ]
    assert collection.answers("test")["test-P36-1"] == ["Orléans", "Orleans"]
    assert collection.answers("train") == {"train-P36-0": ["Girona"]}
    assert collection.texts(["1"]) == {"1": ("Hesse", "Wiesbaden is a town")}


def test_a_packed_copy_beside_a_plain_file_is_not_read(folder, make):
    plain = make("plain", {"source": "entity_questions"}, path=str(folder))
    for path in list(folder.glob("dataset/*/P*.json")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    both = make("both", {"source": "entity_questions"}, path=str(folder))
    assert both.manifest.files == plain.manifest.files


def test_a_folder_without_questions_is_refused(folder, make):
    for path in folder.glob("dataset/t*/P*.json*"):
        path.unlink()
    with pytest.raises(UserError, match=r"holds no dataset/test/P36\.test\.json or the like"):
        make("eq", {"source": "entity_questions"}, path=str(folder))
    with pytest.raises(UserError, match=r"holds no wiki\.tsv"):
        make("eq", {"source": "entity_questions", "corpus": "wiki.tsv"}, path=str(folder))
