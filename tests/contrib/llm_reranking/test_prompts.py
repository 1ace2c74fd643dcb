"""Orders read off answers, windows that slide, and questions that are never asked twice."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tandem.errors import UserError
from tandem.extras.language_models.answers import AnswerStore, ModelAnswer
from tandem.extras.language_models.prompts import (
    iterate_windows,
    order_by_windows,
    read_grade,
    read_permutation,
)


@pytest.mark.parametrize(
    ("answer", "order", "repaired"),
    [
        ("[2] > [3] > [1]", [1, 2, 0], False),
        ("The order is: 3 > 1 > 2.", [2, 0, 1], False),
        ("The order is: 3, 1, 2.", [0, 1, 2], True),  # prose
        ("I read 3 passages: 1 and 2 match", [0, 1, 2], True),
        ("[3], [1], [2]", [2, 0, 1], False),
        # what is said before the chain is prose
        ("[1] is better than [3]: [2] > [1] > [3]", [1, 0, 2], False),
        ("At first [1] > [2]; but no: [3]>1 > [2].", [2, 0, 1], False),
        ("[1] > [2]. No, [2] > [1]", [1, 0, 2], True),
        ("It scores 0.9 > 0.8 > 0.7", [0, 1, 2], True),
        ("[2] > [2] > [1]", [1, 0, 2], True),  # one twice, one missing
        ("[9] > [0] > [3]", [2, 0, 1], True),  # out of range
        (f"[3] > [{'9' * 5000}] > [1]", [2, 0, 1], True),
        ("[3]", [2, 0, 1], True),
        ("<think>[1] says nothing, [3] little.</think>\n[2] > [3] > [1]", [1, 2, 0], False),
        ("<think>[3] is about the query, but [1]", [0, 1, 2], True),  # cut off before it answered
        ("Of the 3 passages, best first: [2] > [1] > [3]", [1, 0, 2], False),
        ("", [0, 1, 2], True),
        ("I cannot help with that.", [0, 1, 2], True),
    ],
)
def test_an_order_is_repaired_by_rule(answer, order, repaired):
    assert read_permutation(answer, 3) == (order, repaired)


@pytest.mark.parametrize(
    ("answer", "grade", "repaired"),
    [
        ("Grade: 2", 2, False),
        ("<think>A 3? No.</think>\nGrade: 0\n", 0, False),
        ("<think>It may be grade 3, but", None, True),  # cut off before it answered
        ("Grade: 1 <think>or perhaps grade 2", 1, False),
        ("The grade is **3**.", 3, True),
        ("GRADE = 1, since 2 of 3 questions stay open.", 1, True),
        ("2", 2, True),
        ("**2**.", 2, True),
        ("Grade (0-3): 2", 2, True),
        ("Grade [0 to 3] is 1.", 1, True),
        ("Grade (0-3)", None, True),
        ("Grade: 0-3", None, True),
        ("It is a 2.", 2, True),
        ("It answers 2 questions.", None, True),
        ("Grade: 1 or grade: 2", None, True),  # which of them?
        ("Grade: 4", None, True),
        ("Grade: -1", None, True),
        ("Grade: 2.5", None, True),
        ("2 or 3", None, True),
        ("I cannot say.", None, True),
        ("", None, True),
    ],
)
def test_a_grade_is_read_or_there_is_none(answer, grade, repaired):
    assert read_grade(answer) == (grade, repaired)


def test_windows_slide_from_the_end_to_the_top():
    assert [(w.start, w.stop) for w in iterate_windows(10, 4, 2)] == [
        (6, 10),
        (4, 8),
        (2, 6),
        (0, 4),
    ]
    assert [(w.start, w.stop) for w in iterate_windows(9, 4, 2)] == [(5, 9), (3, 7), (1, 5), (0, 4)]
    assert [(w.start, w.stop) for w in iterate_windows(3, 4, 2)] == [(0, 3)]


def test_the_best_passage_climbs_from_the_end_to_the_top():
    worth = [3, 1, 4, 1, 5, 9, 2, 6]

    def order_of(inside):
        return sorted(range(len(inside)), key=lambda at: -worth[inside[at]])

    ranked = order_by_windows(len(worth), 4, 2, order_of)
    assert [worth[at] for at in ranked[:2]] == [9, 6]  # as many as two windows share are carried on
    assert sorted(ranked) == list(range(len(worth)))
    assert [worth[at] for at in order_by_windows(len(worth), 8, 4, order_of)] == sorted(
        worth, reverse=True
    )


class Echo:
    """Answers with the prompt, and keeps what it was asked."""

    def __init__(self):
        self.prompts = []

    def complete(self, prompt, tokens):
        self.prompts.append(prompt)
        return ModelAnswer(prompt.upper(), None, 5, tokens)

    def compare(self, prompt, words):
        self.prompts.append(prompt)
        return ModelAnswer("", float(len(prompt)), 7, 1)


def test_a_question_is_asked_once(tmp_path):
    path, model = tmp_path / "answers" / "echo.sqlite", Echo()
    first = AnswerStore(path, lambda: model)
    assert [first.complete(prompt, 3).text for prompt in "aba"] == ["A", "B", "A"]
    first.close()
    again = AnswerStore(path, lambda: model)
    assert [again.complete(prompt, 3).text for prompt in "bc"] == ["B", "C"]
    assert model.prompts == ["a", "b", "c"]
    assert again.counts == {"asked": 1, "known": 1, "prompt_tokens": 10, "answer_tokens": 6}
    again.complete("b", 4)  # other words may follow where more are allowed
    assert again.compare("b", ("yes", "no")).score == 1.0
    assert model.prompts == ["a", "b", "c", "b", "b"]
    again.close()


class Slow(Echo):
    """Answers after a while, in which other threads ask, too."""

    def complete(self, prompt, tokens):
        time.sleep(0.2)
        return super().complete(prompt, tokens)


def test_threads_that_ask_the_same_at_once_ask_once(tmp_path):
    model = Slow()
    answers = AnswerStore(tmp_path / "answers.sqlite", lambda: model)
    with ThreadPoolExecutor(4) as threads:
        said = [answer.text for answer in threads.map(answers.complete, ["same"] * 4, [3] * 4)]
    assert said == ["SAME"] * 4
    assert model.prompts == ["same"]
    assert (answers.counts["asked"], answers.counts["known"]) == (1, 3)
    answers.close()


class Down(Slow):
    """Fails the first time."""

    def complete(self, prompt, tokens):
        answer = super().complete(prompt, tokens)
        if len(self.prompts) == 1:
            raise UserError("status 500")
        return answer


def test_threads_that_wait_for_an_answer_learn_that_it_failed_and_the_next_asks_again(tmp_path):
    model = Down()
    answers = AnswerStore(tmp_path / "answers.sqlite", lambda: model)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(answers.complete, "same", 3) for _ in range(2)]
        assert [str(each.exception(timeout=30)) for each in asked] == ["status 500"] * 2
    assert answers.complete("same", 3).text == "SAME"
    assert len(model.prompts) == 2
    answers.close()


def test_a_file_of_answers_that_is_none_is_one_line(tmp_path):
    (tmp_path / "answers.sqlite").write_bytes(b"this is no database, however long the line is" * 50)
    with pytest.raises(
        UserError,
        match="answers.sqlite: cannot be read .*; delete it, its questions will be asked again",
    ):
        AnswerStore(tmp_path / "answers.sqlite", Echo)


def test_a_file_of_answers_that_is_damaged_within_is_one_line(tmp_path):
    path = tmp_path / "answers.sqlite"
    answers = AnswerStore(path, Echo)
    for number in range(100):
        answers.complete(f"{number}", 3)
    answers.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"x" * (len(whole) - 8192))
    answers = AnswerStore(path, Echo)
    with pytest.raises(UserError, match="answers.sqlite: cannot be read .*; delete it"):
        for number in range(100):
            answers.complete(f"{number}", 3)
    answers.close()


@pytest.mark.parametrize("problem", ["locked", "full"])
def test_a_file_of_answers_that_is_locked_or_full_is_one_line_and_kept(problem, tmp_path):
    answers = AnswerStore(tmp_path / "answers.sqlite", Echo)
    other = sqlite3.connect(answers.path)
    if problem == "locked":
        other.execute("BEGIN EXCLUSIVE")
        answers._file.execute("PRAGMA busy_timeout = 1")
    else:
        answers._file.execute("PRAGMA max_page_count = 4")
    with pytest.raises(UserError, match=f"answers.sqlite: .*{problem}.*run the same command again"):
        answers.complete("a" * 10_000, 3)
    other.close()
    answers.close()
