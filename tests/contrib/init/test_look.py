"""What a look at a collection counts, refuses and warns of."""

import json
from pathlib import Path

import pytest
from pytest import approx

from tandem.contrib.init.look import Look, look
from tandem.errors import UserError
from tandem.store.job import Job


def write(
    folder: Path, docs: list[str], qrels: dict[str, list[str]], texts: list[str] | None = None
) -> Path:
    """A BEIR folder: every judgement is of a query of its own, by number within its split."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    texts = texts or ["the cat is on the mat"] * len(docs)
    rows = [{"_id": doc, "text": text} for doc, text in zip(docs, texts, strict=True)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [f"{split}{i}" for split, named in qrels.items() for i in range(len(named))]
    rows = [{"_id": query, "text": "what is on the mat"} for query in queries]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, named in qrels.items():
        lines = "".join(f"{split}{i}\t{doc}\t1\n" for i, doc in enumerate(named))
        (folder / "qrels" / f"{split}.tsv").write_text(lines)
    return folder


def seen(folder: Path, seconds: float = 60.0, **params: object) -> Look:
    return look(
        Job("dataset", Path("mine"), {"source": "beir", **params}, {}, {"path": str(folder)}),
        seconds,
    )


def test_counts_by_hand(tmp_path):
    texts = ["the cat is on the mat", "a dog"]
    summary = seen(
        write(tmp_path, ["d1", "d2"], {"train": ["d1", "d1", "d2"], "test": ["d2"]}, texts)
    )
    assert (summary.passages, summary.whole, summary.queries) == (2, True, {"train": 3, "test": 1})
    assert summary.positives == {"train": 3, "test": 1}
    assert summary.lengths["passage"]["words"] == {
        "mean": 4.0,
        "median": 4.0,
        "p90": approx(5.6),
        "max": 6,
    }
    assert summary.lengths["query"]["words"]["mean"] == 5.0
    assert summary.languages == {"passage": {"en": 1.0}, "query": {"en": 1.0}}
    assert summary.notes == []


def test_ids_that_never_match_are_refused_with_an_example_of_each(tmp_path):
    folder = write(tmp_path, ["d1", "d020"], {"test": ["D-20", "D-1"]})
    with pytest.raises(UserError) as error:
        seen(folder)
    yours = "0 of 2 qrels name a passage of the corpus: yours look like D-20, the corpus has d020"
    assert str(error.value) == f"{yours}; mend the ids of one of them"


def test_answers_count_where_no_passage_is_judged_relevant(tmp_path):
    folder = write(tmp_path, ["d1"], {"test": ["d1", "d1"]})
    (folder / "qrels" / "test.tsv").write_text("test0\td1\t0\ntest1\td1\t0\n")
    with pytest.raises(UserError, match="none of the 2 judgements of split test is above 0"):
        seen(folder)
    (folder / "answers.jsonl").write_text('{"_id": "test0", "answers": ["mat"]}\n')
    summary = seen(folder)
    assert (summary.positives, summary.answered) == ({}, {"test": 1})


def test_without_a_similar_id_the_example_is_the_first(tmp_path):
    with pytest.raises(UserError, match="yours look like x9, the corpus has d1;"):
        seen(write(tmp_path, ["d1", "d2"], {"test": ["x9"]}))


def test_some_unknown_ids_are_a_warning_with_their_share(tmp_path):
    summary = seen(write(tmp_path, ["d1", "d02"], {"test": ["d1", "d1", "d1", "D2"]}))
    line = (
        "1 of 4 qrels (25.0%) name no passage of the corpus, such as D2, where the corpus has d02"
    )
    assert summary.notes == [f"{line}: no run can find them"]
    assert not summary.drop_unknown


def test_a_split_of_mostly_unknown_ids_has_to_drop_them(tmp_path):
    summary = seen(write(tmp_path, ["d1"], {"train": ["d1"] * 9, "test": ["d1", "x", "y"]}))
    assert summary.drop_unknown
    assert summary.notes == [
        "2 of 12 qrels (16.7%) name no passage of the corpus, such as x: they are dropped"
    ]


@pytest.mark.parametrize(
    ("docs", "qrels", "message"),
    [
        (
            ["d1", "d2", "d1"],
            ["d1"],
            r"corpus.jsonl:3: document id 'd1' again, first at 1; every id must be unique",
        ),
        (
            ["d 1"],
            ["d1"],
            r"corpus.jsonl:1: document id 'd 1'; an id must not be empty or hold white space",
        ),
        ([], ["d1"], r"corpus.jsonl: the corpus is empty; at least one passage is needed"),
    ],
)
def test_what_the_dataset_would_refuse_is_refused_at_once(tmp_path, docs, qrels, message):
    with pytest.raises(UserError, match=message):
        seen(write(tmp_path, docs, {"test": qrels}))


@pytest.mark.parametrize(
    ("splits", "warned"),
    [
        (["train", "validation", "test"], ["validation"]),
        (["train", "val", "development"], ["val", "development"]),
        (["train", "dev", "validation"], []),
        (["validation", "test"], []),  # nothing is trained
        (["train", "dl19"], []),
    ],
)
def test_validation_queries_that_are_not_called_dev_are_a_warning(tmp_path, splits, warned):
    line = "counts as a test set: call it dev (dev.tsv), or a tenth of train becomes dev"
    notes = seen(write(tmp_path, ["d1"], {split: ["d1"] for split in splits})).notes
    assert notes == [f"split {split} {line}" for split in warned]


def test_queries_that_no_file_holds_are_refused(tmp_path):
    folder = write(tmp_path, ["d1"], {"test": ["d1"]})
    (folder / "qrels/test.tsv").write_text("d1\ttest0\t1\n")
    with pytest.raises(
        UserError, match="1 of 1 judgements of split test name queries that .*lacks, the first d1"
    ):
        seen(folder)


def test_a_question_whose_answers_stand_twice_is_refused(tmp_path):
    folder = write(tmp_path, ["d1"], {"test": ["d1"]})
    line = json.dumps({"_id": "test0", "answers": ["a cat"]}) + "\n"
    (folder / "answers.jsonl").write_text(2 * line)
    with pytest.raises(UserError, match="answers.jsonl:2: query id .test0. again"):
        seen(folder)


def test_a_split_without_relevant_passages_is_refused(tmp_path):
    folder = write(tmp_path, ["d1"], {"test": ["d1"]})
    (folder / "qrels/test.tsv").write_text("test0\td1\t0\n")
    with pytest.raises(UserError, match="none of the 1 judgements of split test is above 0"):
        seen(folder)


def test_after_its_time_the_rest_of_the_corpus_is_left_and_said_so(tmp_path):
    folder = write(tmp_path, [f"d{i}" for i in range(40_000)], {"test": ["d39999", "unknown"]})
    summary = seen(folder, seconds=1e-9)
    assert (summary.passages, summary.whole) == (16_384, False)  # those that are read at once
    assert summary.notes == [
        "the corpus has more than the 16,384 passages read in 0 s: judgements and ids are not checked "
        "(--seconds 0 reads all)"
    ]
    assert seen(folder, seconds=0.0).passages == 40_000


def test_half_of_the_texts_may_be_in_another_language(tmp_path):
    german = "die Katze ist auf der Matte und der Hund ist nicht im Haus"
    summary = seen(
        write(
            tmp_path,
            ["d1", "d2"],
            {"test": ["d1"]},
            ["the cat is on the mat and in the sun", german],
        )
    )
    assert summary.languages["passage"] == {"en": 0.5, "de": 0.5}


def test_real_qrels_that_name_unpadded_ids(real):
    summary = seen(real("cacm-raw"))
    assert summary.notes[1].startswith(
        "55 of 796 qrels (6.9%) name no passage of the corpus, such as CACM-756, where"
    )
    assert "the corpus has CACM-0756" in summary.notes[1]
    assert (summary.passages, summary.queries) == (3204, {"test": 52})


def test_a_split_without_judgements_is_said_not_to_be_scored(tmp_path):
    folder = write(tmp_path, ["d1"], {"train": ["d1"]})
    (folder / "queries-train.tsv").write_text("q1\twhat is on the mat\n")
    (folder / "queries-test.tsv").write_text("q2\twhere is the cat\n")
    (folder / "qrels.txt").write_text("q1\td1\t1\n")
    params = {
        "source": "files",
        "corpus": "corpus.jsonl",
        "queries": {"train": "queries-train.tsv", "test": "queries-test.tsv"},
        "qrels": {"train": "qrels.txt"},
    }
    found = look(Job("dataset", Path("mine"), params, {}, {"path": str(folder)}), 60.0)
    assert found.list_unlabelled() == ["test"]
    assert "no query of split test has a relevant passage: it is not scored" in found.notes
