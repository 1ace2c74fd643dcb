"""DuReader-retrieval's construction on raw files of DuReader 2.0: lengths, positives, and Algorithm 1 against people.

    python benchmarks/algorithm1.py search.train.json search.dev.json

DuReader's annotators marked the documents from which they took an answer (`is_selected`). In each of these, its files
name the paragraph that is most related to the answer (`most_related_para`). The script prints a line for each unit and
threshold, with columns separated by tabs: how many passages are positive by Algorithm 1, how many contain such a
paragraph, how many are both, and the shares of both among the latter and the former.
"""

import json
import statistics
import sys
from pathlib import Path

from tandem.contrib.formats.dureader2 import is_positive, join_paragraphs, split_tokens
from tandem.contrib.formats.options import DuReader2

UNITS, THRESHOLDS = ("characters", "words"), (0.3, 0.5, 0.7)
LENGTH = DuReader2(source="dureader2").passage_characters


def read_documents(paths: list[Path]) -> list[tuple[list[str], list[tuple[list[str], int | None]]]]:
    """Return each question's answers, and each document's paragraphs with the number of the one that people marked."""
    questions = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n"):
            record = json.loads(line)
            answers = [answer for answer in record.get("answers", []) if answer.strip()]
            documents = []
            for document in record["documents"]:
                marked = document.get("most_related_para") if document.get("is_selected") else None
                stripped = [paragraph.strip() for paragraph in document["paragraphs"]]
                kept = [paragraph for paragraph in stripped if paragraph]
                # Blank paragraphs are left out, so the marked one may have moved.
                if marked is not None and marked < len(stripped) and stripped[marked]:
                    marked = sum(1 for paragraph in stripped[:marked] if paragraph)
                else:
                    marked = None
                documents.append((kept, marked))
            if answers:
                questions.append((answers, documents))
    return questions


def main(paths: list[Path]) -> None:
    """Print the lengths of passages, then a line for each unit and threshold."""
    questions = read_documents(paths)
    lengths = []
    for _, documents in questions:
        for paragraphs, _ in documents:
            lengths += [len("".join(passage)) for passage in join_paragraphs(paragraphs, LENGTH)]
    print("questions", "passages", "median characters", "mean", sep="\t")
    print(
        len(questions),
        len(lengths),
        statistics.median(lengths),
        round(statistics.mean(lengths), 1),
        sep="\t",
    )

    print(
        "unit",
        "threshold",
        "positive",
        "a query",
        "questions without",
        "marked",
        "both",
        "recall",
        "precision",
        sep="\t",
    )
    for unit in UNITS:
        for threshold in THRESHOLDS:
            print(unit, threshold, *compare(questions, unit, threshold), sep="\t")


def compare(
    questions: list[tuple[list[str], list[tuple[list[str], int | None]]]],
    unit: str,
    threshold: float,
):
    """Return the counts of one setting; recall and precision refer to the passages that people marked."""
    entry = DuReader2(source="dureader2", unit=unit, threshold=threshold)
    positive = marked = both = without = 0
    for answers, documents in questions:
        tokens = [split_tokens(answer, unit) for answer in answers]
        found = 0
        for paragraphs, mark in documents:
            first = 0
            for passage in join_paragraphs(paragraphs, LENGTH):
                by_algorithm = any(is_positive(paragraph, tokens, entry) for paragraph in passage)
                by_people = mark is not None and first <= mark < first + len(passage)
                first += len(passage)
                found += by_algorithm
                marked += by_people
                both += by_algorithm and by_people
        positive += found
        without += not found
    shares = [f"{100 * both / count:.1f} %" for count in (marked, positive)]
    return positive, f"{positive / len(questions):.2f}", without, marked, both, *shares


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
