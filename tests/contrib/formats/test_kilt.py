"""KILT's files: pages or paragraphs, and what provenances name."""

import json

import pytest

from tandem.data.collection import Collection
from tandem.errors import UserError

PAGES = [
    {
        "wikipedia_id": "12",
        "wikipedia_title": "Otter",
        "text": ["Otter\n", "It swims.\n", "Section::::Food.\n", "Crabs."],
    },
    {"wikipedia_id": 7, "wikipedia_title": "Heron", "text": ["Heron\n", "It wades.\n"]},
]
NQ = [
    {
        "id": "-5",
        "input": "what does it eat?",
        "output": [
            {
                "answer": "crabs",
                "provenance": [
                    {"wikipedia_id": "12", "start_paragraph_id": 2, "end_paragraph_id": 3}
                ],
            },
            {"answer": "crabs", "provenance": []},
            {
                "answer": "fish",
                "provenance": [
                    {"wikipedia_id": "12", "start_paragraph_id": 3, "end_paragraph_id": 3}
                ],
            },
            {"provenance": [{"wikipedia_id": "7", "start_paragraph_id": 1, "end_paragraph_id": 1}]},
        ],
    }
]
FEVER = [
    {
        "id": -5,
        "input": "Herons wade.",
        "output": [{"answer": "SUPPORTS", "provenance": [{"wikipedia_id": 7}]}],
    }
]
ENTRY = {
    "source": "kilt",
    "questions": {"dev": "nq-dev-kilt.jsonl", "fever": "fever-dev-kilt.jsonl"},
}


@pytest.fixture
def folder(tmp_path):
    files = {
        "kilt_knowledgesource.json": PAGES,
        "nq-dev-kilt.jsonl": NQ,
        "fever-dev-kilt.jsonl": FEVER,
    }
    for name, records in files.items():
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def test_pages_are_passages_and_each_data_set_a_split(folder, make):
    collection = Collection(make("kilt", ENTRY, path=str(folder)))
    assert collection.texts(["12", "7"]) == {
        "12": ("Otter", "It swims. Section::::Food. Crabs."),
        "7": ("Heron", "It wades."),
    }
    assert collection.queries("dev") == {"dev.-5": "what does it eat?"}
    assert collection.queries("fever") == {"fever.-5": "Herons wade."}
    assert collection.qrels("dev") == {"dev.-5": {"12": 1, "7": 1}}
    assert collection.qrels("fever") == {"fever.-5": {"7": 1}}


def test_paragraphs_are_numbered_as_provenances_number_them(folder, make):
    entry = {**ENTRY, "unit": "paragraph", "questions": {"dev": "nq-dev-kilt.jsonl"}}
    collection = Collection(make("kilt", entry, path=str(folder)))
    assert collection.qrels("dev") == {"dev.-5": {"12-2": 1, "12-3": 1, "7-1": 1}}
    assert collection.texts(["12-3"]) == {"12-3": ("Otter", "Crabs.")}


def test_provenance_of_whole_pages_names_no_paragraph(folder, make):
    entry = {**ENTRY, "unit": "paragraph"}
    with pytest.raises(
        UserError, match=r"fever-dev-kilt\.jsonl:1: start_paragraph_id is None .* or unit: page"
    ):
        make("kilt", entry, path=str(folder))


def test_a_dataset_without_questions_is_refused(folder, make):
    with pytest.raises(UserError, match=r"questions: none; .* \{dev: nq-dev-kilt.jsonl\}"):
        make("kilt", {"source": "kilt"}, path=str(folder))
