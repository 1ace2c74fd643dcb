"""Broken queries: each fault by hand, the same whatever the order, and a dataset's further splits."""

import json
import random

import pytest

from tandem.config.training import PERTURBATIONS
from tandem.contrib.robustness.perturbation import (
    FEWEST_LETTERS,
    NEIGHBOURS,
    TYPOS,
    break_words,
    perturb,
)
from tandem.data.collection import EXCLUDED, Collection
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

TEXTS = [
    "how do otters crack shells?",
    "Größe der Möwe",
    "海獭吃什么",
    "a b",
    "",
    "2024: otter-proof fences",
]


def test_neighbours_on_the_keyboard_by_hand():
    assert sorted(NEIGHBOURS["s"]) == sorted("weadzx")
    assert sorted(NEIGHBOURS["q"]) == sorted("wa")
    assert sorted(NEIGHBOURS["m"]) == sorted("njk")
    assert all(
        letter in NEIGHBOURS[other] for letter, others in NEIGHBOURS.items() for other in others
    )


class Chosen(random.Random):
    """Draws that take the first of everything."""

    def choice(self, seq):
        return seq[0]

    def randrange(self, *_):
        return 1

    def sample(self, population, k, **_):
        return population[:k]


@pytest.mark.parametrize(
    ("kind", "word", "broken"),
    [
        ("keyboard", "Otter", "Itter"),
        ("keyboard", "über", "üger"),
        ("keyboard", "ööö", "ööö"),
        ("swap", "otter", "toter"),
        ("swap", "oott", "otot"),
        ("swap", "ooo", "ooo"),
        ("drop", "otter", "oter"),
        ("drop", "o", "o"),
        ("double", "otter", "ottter"),
    ],
)
def test_a_typo_by_hand(kind, word, broken):
    assert TYPOS[kind](word, Chosen()) == broken


def test_the_first_long_word_is_broken_and_the_rest_stays():
    assert break_words("do the (otters) swim?", "swap", 1, Chosen()) == "do the (toters) swim?"
    assert break_words("do the (otters) swim?", "swap", 9, Chosen()) == "do the (toters) wsim?"
    assert break_words("is it?", "swap", 1, Chosen()) == "si it?"
    assert break_words("42 + 1", "drop", 1, Chosen()) == "42 + 1"


@pytest.mark.parametrize("kind", ["swap", "drop", "double"])
@pytest.mark.parametrize(
    "text", ["हिन्दी किताब कहाँ है", "বাংলা বই কোথায়", "اللُّغَةُ العَرَبِيَّة", "e\u0301te\u0301"]
)
def test_a_word_with_vowel_signs_is_broken_as_any_other(kind, text):
    """Its letters alone are too few to swap one, or to leave one out."""
    broken = perturb(text, kind, "q1", 42)
    assert broken != text
    assert sum(a != b for a, b in zip(broken.split(), text.split(), strict=True)) == 1


def test_case_and_order_by_hand():
    assert perturb("how do Otters", "case", "q", 1) == "HOW DO OTTERS"
    shuffled = perturb("how do otters crack shells", "order", "q", 1)
    assert shuffled != "how do otters crack shells"
    assert sorted(shuffled.split()) == sorted(["how", "do", "otters", "crack", "shells"])
    assert perturb("same same", "order", "q", 1) == "same same"


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_a_query_is_broken_by_seed_kind_and_id_alone(kind):
    names = [f"q{i}" for i in range(40)]
    first = {name: perturb("where do otters build their shelters", kind, name, 7) for name in names}
    again = {
        name: perturb("where do otters build their shelters", kind, name, 7)
        for name in reversed(names)
    }
    assert first == again
    if kind != "case":
        assert len(set(first.values())) > 5
        assert first != {
            name: perturb("where do otters build their shelters", kind, name, 8) for name in names
        }


@pytest.mark.parametrize("kind", PERTURBATIONS)
@pytest.mark.parametrize("text", TEXTS)
def test_any_text_stays_a_text(kind, text):
    broken = perturb(text, kind, "q", 3)
    assert bool(broken.strip()) == bool(text.strip())
    if kind in TYPOS:
        assert abs(len(broken) - len(text)) <= 1


def test_short_words_are_left_alone_where_there_are_long_ones():
    for name in range(60):
        broken = perturb("how do the otters eat", "drop", str(name), 1).split()
        assert [word for word in broken if len(word) < FEWEST_LETTERS] == [
            "how",
            "do",
            "the",
            "eat",
        ]


@pytest.fixture
def nature(make, tmp_path):
    """A dataset with two test queries and one training query."""
    folder = tmp_path / "nature"
    (folder / "qrels").mkdir(parents=True)
    passages = [{"_id": name, "text": f"the {name} swims"} for name in ("otter", "seal")]
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps(passage) + "\n" for passage in passages)
    )
    queries = {"a": "swimming otters", "b": "swimming seals", "c": "training otters"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "qrels" / "test.tsv").write_text("a\totter\t1\nb\tseal\t1\nb\totter\t0\n")
    (folder / "qrels" / "train.tsv").write_text("c\totter\t1\n")
    return make("nature", {"source": "beir"}, path=str(folder))


def test_a_dataset_has_broken_copies_as_further_splits(nature, tmp_path):
    params = {
        "source": "perturbed",
        "split": "test",
        "kinds": ["swap", "case"],
        "words": 1,
        "seed": 5,
    }
    run(Job("dataset", tmp_path / "results" / "broken", params, {"of": nature}, {}))
    broken = Collection(open_artifact(tmp_path / "results" / "broken", "dataset"))
    assert broken.queries("test") == {"a": "swimming otters", "b": "swimming seals"}
    assert broken.queries("train") == {"c": "training otters"}
    assert broken.queries("test_case") == {"case.a": "SWIMMING OTTERS", "case.b": "SWIMMING SEALS"}
    swapped = broken.queries("test_swap")
    assert swapped == {
        f"swap.{name}": perturb(broken.queries("test")[name], "swap", name, 5)
        for name in ("a", "b")
    }
    assert broken.qrels("test_swap") == {"swap.a": {"otter": 1}, "swap.b": {"seal": 1, "otter": 0}}
    assert broken.artifact.manifest.facts["source"]["changed"] == {"swap": 2, "case": 2}


def test_a_copy_does_not_find_the_passage_that_its_query_is(make, make_job, tmp_path):
    folder = tmp_path / "arguments"
    (folder / "qrels").mkdir(parents=True)
    texts = {"a": "otters swim", "b": "otters do not swim", "c": "seals swim"}
    lines = "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts.items())
    (folder / "corpus.jsonl").write_text(lines)
    asked = lines + json.dumps({"_id": "q", "text": "no passage"}) + "\n"
    (folder / "queries.jsonl").write_text(asked)
    (folder / "qrels" / "test.tsv").write_text("a\tb\t1\nb\ta\t1\nb\tb\t1\nq\tc\t1\n")
    base = make("arguments", {"source": "beir"}, path=str(folder))
    params = {"source": "perturbed", "split": "test", "kinds": ["case"]}
    job = make_job("dataset", tmp_path / "broken-0123456789", params, {"of": base})
    run(job)
    assert Collection(open_artifact(job.out)).qrels("test_case")["case.b"] == {"a": 1, "b": 1}
    job = make_job(
        "dataset", tmp_path / "own-0123456789", params | {"excludes_own": True}, {"of": base}
    )
    run(job)
    assert Collection(open_artifact(job.out)).qrels("test_case") == {
        "case.a": {"b": 1, "a": EXCLUDED},
        "case.b": {"a": 1, "b": EXCLUDED},
        "case.q": {"c": 1},
    }


@pytest.fixture
def broken(nature, tmp_path):
    """The collection with its test queries, of which a letter is dropped."""
    params = {"source": "perturbed", "split": "test", "kinds": ["drop"], "words": 1, "seed": 5}
    run(Job("dataset", tmp_path / "results" / "broken", params, {"of": nature}, {}))
    return open_artifact(tmp_path / "results" / "broken", "dataset")


def test_a_restored_run_is_scored_as_deep_as_the_one_on_broken_queries(
    nature, broken, make_job, write_ranked, tmp_path
):
    from tandem.contrib.robustness import restore
    from tandem.data.runs import get_scored_depth

    reranked = write_ranked(
        "rerank",
        tmp_path / "rerank-0123456789",
        {"depth": 1},
        {"dataset": broken},
        [("drop.a", ["seal", "otter"], [2.5, -1.0]), ("drop.b", ["seal"], [3.0])],
    )
    job = make_job(
        "restore_queries",
        tmp_path / "run-0123456789",
        {"split": "test", "depth": 2, "kind": "drop"},
        {"dataset": nature, "perturbed": broken, "run": reranked},
    )
    restore.run(job)
    assert get_scored_depth(open_artifact(job.out)) == 1


def test_a_run_on_broken_queries_is_restored(nature, broken, make_job, tmp_path):
    import numpy as np

    from tandem.contrib.robustness import restore
    from tandem.data.runs import get_scored_depth, iter_run, write_run
    from tandem.store.job import writing

    asked = make_job(
        "bm25",
        tmp_path / "bm25-0123456789",
        {"split": "test_drop", "depth": 2},
        {"dataset": broken},
    )
    with writing(asked) as draft:
        lists = [
            ("drop.a", ["seal", "otter"], np.array([2, 1])),
            ("drop.b", ["seal"], np.array([3])),
        ]
        write_run(
            asked,
            draft,
            [(query, docs, scores.astype(np.float32)) for query, docs, scores in lists],
        )
    inputs = {"dataset": nature, "perturbed": broken, "run": open_artifact(asked.out)}
    job = make_job(
        "restore_queries",
        tmp_path / "run-0123456789",
        {"split": "test", "depth": 2, "kind": "drop"},
        inputs,
    )
    restore.run(job)
    restored = [
        (query, docs, scores.tolist())
        for query, docs, scores in iter_run(open_artifact(job.out), nature)
    ]
    assert restored == [("a", ["seal", "otter"], [2, 1]), ("b", ["seal"], [3])]
    assert get_scored_depth(open_artifact(job.out)) is None
    wrong = make_job(
        "restore_queries", tmp_path / "wrong-0123456789", {"split": "test", "kind": "swap"}, inputs
    )
    with pytest.raises(UserError, match="is on query drop.a, which is not swap"):
        restore.run(wrong)
    other = make_job(
        "restore_queries",
        tmp_path / "other-0123456789",
        {"kind": "drop"},
        inputs | {"dataset": broken},
    )
    with pytest.raises(UserError, match="expected broken ones of"):
        restore.run(other)
