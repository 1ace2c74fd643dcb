"""SQuAD's dev set as a collection, data/squad of docs/results: each article's questions belong to one split.

    python examples/squad.py dev-v1.1.json data/squad

`dev-v1.1.json` (CC BY-SA 4.0) is available at https://rajpurkar.github.io/SQuAD-explorer/. A passage is a paragraph; it
is relevant to the questions about it. The 48 articles are shuffled: the first 28 are for training, 5 for dev, 15 for
test. The passages of all articles are searched. The folder also contains the questions' answers.
"""

import random
from collections.abc import Iterable
from pathlib import Path

from collected import bring, join_words, write_judgements, write_rows

from tandem.contrib.formats.squad import Paragraph, read_paragraphs
from tandem.errors import UserError

ARTICLES = {"train": 28, "dev": 5, "test": 15}
SEED = 13
FILE = "SQuAD 1.1's dev set, dev-v1.1.json of https://rajpurkar.github.io/SQuAD-explorer/"
MEASURED = {
    "corpus.jsonl": "dacd51fdb50becc6da2cd7394dccfe2066aa4eafd6797cf8005dba517113d4b3",
    "queries.jsonl": "51a6820e82c233fee46b268f4e3d0bf6592a920e69caf16c73fee6554dd00065",
}

Article = list[tuple[str, Paragraph]]  # each paragraph with its passage id


def main() -> None:
    """Write the folder that the command line names."""
    bring(str(__doc__), FILE, write, MEASURED)


def write(file: Path, folder: Path) -> str:
    """Write passages, questions, their answers, and the relevant passage of each question."""
    articles = read_articles(file)
    corpus, queries, answers = [], [], []
    for title, article in articles.items():
        for passage, paragraph in article:
            corpus.append({"_id": passage, "title": title, "text": join_words(paragraph.text)})
            for question in paragraph.questions:
                queries.append({"_id": question.id, "text": join_words(question.text)})
                distinct = list(dict.fromkeys(question.answers))
                answers.append({"_id": question.id, "answers": distinct})
    write_rows(folder / "corpus.jsonl", corpus)
    write_rows(folder / "queries.jsonl", queries)
    write_rows(folder / "answers.jsonl", answers)
    for split, titles in split_titles(articles).items():
        pairs = [
            (question.id, passage)
            for title in sorted(titles)
            for passage, paragraph in articles[title]
            for question in paragraph.questions
        ]
        write_judgements(folder, split, pairs)
    return f"{len(articles)} articles, {len(corpus):,} passages, {len(queries):,} questions"


def read_articles(file: Path) -> dict[str, Article]:
    """Return the paragraphs of each article, in the order of titles; passages are numbered in this order.

    Raises:
        UserError: the file is not SQuAD's, or has another number of articles.
    """
    by_title: dict[str, list[Paragraph]] = {}
    for title, paragraph in read_paragraphs(file):
        by_title.setdefault(title.replace("_", " "), []).append(paragraph)
    if len(by_title) != sum(ARTICLES.values()):
        raise UserError(f"{file}: has {len(by_title)} articles, not {sum(ARTICLES.values())}")
    articles: dict[str, Article] = {}
    number = 0
    for title, paragraphs in sorted(by_title.items()):
        articles[title] = [(f"dev{number + i:04}", part) for i, part in enumerate(paragraphs)]
        number += len(paragraphs)
    return articles


def split_titles(titles: Iterable[str]) -> dict[str, list[str]]:
    """Return the titles of each split, drawn by a fixed seed."""
    shuffled = sorted(titles)
    random.Random(SEED).shuffle(shuffled)
    splits = {}
    for split, count in ARTICLES.items():
        splits[split], shuffled = shuffled[:count], shuffled[count:]
    return splits


if __name__ == "__main__":
    main()
