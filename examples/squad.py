"""SQuAD's dev set as a collection, data/squad of docs/results: each article's questions are of one split.

    python examples/squad.py dev-v1.1.json data/squad

`dev-v1.1.json` (CC BY-SA 4.0) is had from https://rajpurkar.github.io/SQuAD-explorer/. A passage is a paragraph,
relevant to the questions on it. The 48 articles are shuffled: the first 28 are for training, 5 for dev, 15 for test;
the passages of all are searched. The folder is in BEIR's layout, with the questions' answers beside.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.contrib.formats.squad import Paragraph, read_paragraphs
from tandem.errors import UserError
from tandem.store.files import sha256

ARTICLES = {"train": 28, "dev": 5, "test": 15}
SEED = 13
ABOUT_FILE = "https://rajpurkar.github.io/SQuAD-explorer/ has dev-v1.1.json"
# Of the folder that the pages of docs/results were measured with.
MEASURED = {
    "corpus.jsonl": "dacd51fdb50becc6da2cd7394dccfe2066aa4eafd6797cf8005dba517113d4b3",
    "queries.jsonl": "51a6820e82c233fee46b268f4e3d0bf6592a920e69caf16c73fee6554dd00065",
}

Article = list[tuple[str, Paragraph]]  # each paragraph with its passage id


def main() -> None:
    """Write the folder that the command line names; nothing is left of it where anything fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="SQuAD 1.1's dev set, dev-v1.1.json")
    parser.add_argument("folder", type=Path, help="the collection; it must not exist yet")
    options = parser.parse_args()
    folder = options.folder
    if folder.exists():
        sys.exit(f"{folder}: is there already; remove it, or name another folder")
    if not options.file.is_file():
        sys.exit(f"{options.file}: no such file; {ABOUT_FILE}")
    try:
        articles = read_articles(options.file)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            draft = Path(temporary) / "collection"
            write(articles, draft)
            draft.rename(folder)
    except UserError as error:
        sys.exit(str(error))
    paragraphs = sum(map(len, articles.values()))
    print(f"{folder}: written; {len(articles)} articles, {paragraphs:,} passages")
    for name, digest in MEASURED.items():
        if (found := sha256(folder / name)) != digest:
            print(f"{folder / name} is not the one that docs/results was measured with: {found}")


def read_articles(file: Path) -> dict[str, Article]:
    """Return the paragraphs of each article, in the order of titles; passages are numbered in this order.

    Raises:
        UserError: the file is not SQuAD's, or holds another number of articles.
    """
    by_title: dict[str, list[Paragraph]] = {}
    for title, paragraph in read_paragraphs(file):
        by_title.setdefault(title.replace("_", " "), []).append(paragraph)
    if len(by_title) != sum(ARTICLES.values()):
        problem = f"{len(by_title)} articles, where SQuAD 1.1's dev set has 48"
        raise UserError(f"{file}: {problem}; {ABOUT_FILE}")
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


def write(articles: dict[str, Article], folder: Path) -> None:
    """Write passages, questions, their answers, and the relevant passage of each question."""
    (folder / "qrels").mkdir(parents=True)
    corpus, queries, answers = [], [], []
    for title, article in articles.items():
        for passage, paragraph in article:
            corpus.append({"_id": passage, "title": title, "text": join_words(paragraph.text)})
            for question in paragraph.questions:
                queries.append({"_id": question.id, "text": join_words(question.text)})
                distinct = list(dict.fromkeys(question.answers))
                answers.append({"_id": question.id, "answers": distinct})
    for name, rows in (("corpus", corpus), ("queries", queries), ("answers", answers)):
        write_lines(folder / f"{name}.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))
    for split, titles in split_titles(articles).items():
        judgements = ["query-id\tcorpus-id\tscore"]
        for title in sorted(titles):
            for passage, paragraph in articles[title]:
                judgements += [f"{question.id}\t{passage}\t1" for question in paragraph.questions]
        write_lines(folder / f"qrels/{split}.tsv", judgements)


def join_words(text: str) -> str:
    """Return a text with one space between its words, whatever stood there."""
    return " ".join(text.split())


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, whatever the system's own encoding."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
