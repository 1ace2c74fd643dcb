"""Chinese patients' questions and doctors' answers as a collection, data/cn-med-im of docs/results.

    python examples/cn_med_im.py 样例_内科5000-6000.csv data/cn-med-im

The file (MIT) is available at https://github.com/Toyhom/Chinese-medical-dialogue-data. A query is the title of a
question with at least four characters; the answers to the question are relevant to it. Titles are split by their md5
modulo 20: values below 4 are for test, 4 is for dev, and the others are for training.
"""

import csv
import hashlib
import io
from pathlib import Path

from collected import bring, join_words, write_judgements, write_rows

from tandem.errors import UserError, shortened

COLUMNS = ["department", "title", "ask", "answer"]
SHORTEST = 4  # characters
FILE = "样例_内科5000-6000.csv of https://github.com/Toyhom/Chinese-medical-dialogue-data"
MEASURED = {
    "corpus.jsonl": "274bc13f7d31f3affe9aadc9d2c5784bbde6f6367580b170ed21d800df91202f",
    "queries.jsonl": "2c2ac05c5f12e9dab7797c3d91a1df1c05d026d899d3c2996835ad26e91e1c29",
    "qrels/train.tsv": "ed21be1b5b548c187e49dedb948560f3103f9e1cc6a93f795cc9826b9f099a29",
    "qrels/dev.tsv": "7562049d384062265561d7c6a3e8e1e683a7fe141e2e8c0fdab04fb5ded581ec",
    "qrels/test.tsv": "89b01b958e4043e5e8a0c070491a6e2d8ac7b32eff5b1fe94f4c37ae6e907ba3",
}


def main() -> None:
    """Write the folder that the command line names."""
    bring(str(__doc__), FILE, write, MEASURED)


def write(file: Path, folder: Path) -> str:
    """Write the distinct answers, the distinct titles, and the answers to each title; return a summary."""
    passages: dict[str, str] = {}  # text → id
    queries: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}  # (query, passage) → title
    for title, answer in read_answers(file):
        query = queries.setdefault(title, f"q{len(queries):05}")
        passage = passages.setdefault(answer, f"a{len(passages):05}")
        pairs[query, passage] = title
    rows = [{"_id": id_, "title": "", "text": text} for text, id_ in passages.items()]
    write_rows(folder / "corpus.jsonl", rows)
    rows = [{"_id": id_, "text": text} for text, id_ in queries.items()]
    write_rows(folder / "queries.jsonl", rows)
    for split in ("train", "dev", "test"):
        own = [pair for pair, title in pairs.items() if find_split(title) == split]
        write_judgements(folder, split, own)
    return f"{len(passages):,} passages, {len(queries):,} queries"


def read_answers(file: Path) -> list[tuple[str, str]]:
    """Return the title and the answer of each row.

    Raises:
        UserError: the file has another encoding, or other columns.
    """
    try:
        text = file.read_bytes().decode("gb18030")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not encoded as GB 18030 ({error.reason})") from None
    rows = csv.DictReader(io.StringIO(text))
    if rows.fieldnames != COLUMNS:
        found = shortened(", ".join(rows.fieldnames or []))
        raise UserError(f"{file}: has columns {found}, not {', '.join(COLUMNS)}")
    answers = [(join_words(row["title"]), join_words(row["answer"])) for row in rows]
    return [(title, answer) for title, answer in answers if len(title) >= SHORTEST and answer]


def find_split(title: str) -> str:
    """Return the split of a title."""
    rest = int(hashlib.md5(title.encode()).hexdigest(), 16) % 20
    if rest > 4:
        return "train"
    return "dev" if rest == 4 else "test"


if __name__ == "__main__":
    main()
