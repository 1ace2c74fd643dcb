"""Every file format of a dataset, small and right, and its own mistakes for `test_bad_input.py`."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Edit = Callable[[bytes], bytes]
# appends a passage: folder, id (unless the format makes its own), text
Add = Callable[[Path, str, str], None]


def edit(folder: Path, name: str, change: Edit) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))


def append(text: str) -> Edit:
    return lambda data: data + text.encode()


def replace(content: str | bytes) -> Edit:
    return lambda data: content.encode() if isinstance(content, str) else content


def cut(count: int) -> Edit:
    return lambda data: data[:-count]


@dataclass(frozen=True)
class Format:
    """A collection of two passages, d1 and d2, and at least one query with a judgement or an answer.

    Attributes:
        params: the dataset's entry.
        files: name → content; the first holds the passages.
        add: appends a passage; or the line to append, `{0}` its id and `{1}` its text.
        mistakes: those that take more than `add` or the bytes of the passages: file, and change.
        place: what errors call the passages behind the file's name; the number of a record follows.
    """

    params: dict[str, Any]
    files: dict[str, str | bytes]
    add: Add | str
    mistakes: dict[str, tuple[str, Edit]] = field(default_factory=dict)
    place: str = ""

    @property
    def corpus(self) -> str:
        return next(iter(self.files))

    def add_passage(self, folder: Path, doc: str, text: str) -> None:
        if isinstance(self.add, str):
            edit(folder, self.corpus, append(self.add.replace("{0}", doc).replace("{1}", text)))
        else:
            self.add(folder, doc, text)


def own(
    corpus: str,
    content: str | bytes,
    add: Add | str,
    mistakes: dict[str, tuple[str, Edit]],
    place: str = "",
) -> Format:
    """Files of one's own that differ in the corpus."""
    params = {
        "corpus": corpus,
        "queries": {"test": "q.tsv"},
        "qrels": {"test": "t.txt"},
        "answers": "a.tsv",
    }
    files = {
        corpus: content,
        "q.tsv": "q1\talpha?\n",
        "t.txt": "q1 0 d1 1\n",
        "a.tsv": "q1\talpha\n",
    }
    mistakes = mistakes | {"unknown id in qrels": ("t.txt", append("q1 0 none 1\n"))}
    mistakes |= {"invalid pattern": ("a.tsv", replace("q1\t(open\n"))}
    return Format({"source": "files", **params}, files, add, mistakes, place)


def parquet(*passages: tuple[bytes, ...]) -> bytes:
    """A Parquet file of ids and texts, whose bytes nobody checks."""
    packed = [pa.array(column, pa.binary()).buffers() for column in zip(*passages, strict=True)]
    columns = [pa.Array.from_buffers(pa.string(), len(passages), buffers) for buffers in packed]
    pq.write_table(
        pa.table(dict(zip(("doc_id", "text"), columns, strict=False))), file := io.BytesIO()
    )
    return file.getvalue()


def add_row(folder: Path, doc: str, text: str) -> None:
    edit(folder, "c.parquet", replace(parquet(*TWO, (doc.encode(), text.encode()))))


def add_item(folder: Path, doc: str, text: str) -> None:
    passages = json.loads((folder / "c.json").read_text())
    edit(
        folder,
        "c.json",
        replace(json.dumps([*passages, {"id": doc, "text": text}], ensure_ascii=False)),
    )


def squad(answer: str = "alpha") -> str:
    question = {"id": "q1", "question": "alpha?", "answers": [{"text": answer, "answer_start": 0}]}
    paragraphs = [
        {"id": "d1", "context": "alpha beta", "qas": [question]},
        {"id": "d2", "context": "gamma", "qas": []},
    ]
    return json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}, indent=0)


def add_paragraph(folder: Path, doc: str, text: str) -> None:
    document = json.loads((folder / "dev.json").read_text())
    document["data"][0]["paragraphs"].append({"id": doc, "context": text, "qas": []})
    edit(folder, "dev.json", replace(json.dumps(document, indent=0, ensure_ascii=False)))


def pool(answer: str, *docs: str) -> str:
    """DPR: a question, and the passages that it is trained on."""
    positives = [{"title": "", "text": "", "passage_id": doc} for doc in docs]
    return json.dumps([{"question": "alpha?", "answers": [answer], "positive_ctxs": positives}])


def labelled(query: str, doc: str) -> str:
    """DuReader-retrieval: a query of dev."""
    return (
        json.dumps(
            {
                "question_id": query,
                "question": "alpha?",
                "answer_paragraphs": [{"paragraph_id": doc}],
            }
        )
        + "\n"
    )


def add_line_and_id(folder: Path, doc: str, text: str) -> None:
    """DuReader-retrieval: a passage is a line of a part, and its id stands in the map."""
    edit(folder, PART, append(f"-\t-\t{text}\t0\n"))
    ids = json.loads((folder / MAP).read_text())
    edit(folder, MAP, replace(json.dumps(ids | {str(len(ids)): doc})))


def page(doc: str, text: str) -> str:
    """A page of KILT's snapshot of Wikipedia, without a title."""
    return (
        json.dumps({"wikipedia_id": doc, "wikipedia_title": "", "text": [text]}, ensure_ascii=False)
        + "\n"
    )


def task(query: str, answer: str, doc: str) -> str:
    """A question of one of KILT's data sets, with the page that answers it."""
    output = {"answer": answer, "provenance": [{"wikipedia_id": doc, "title": "x"}]}
    return json.dumps({"id": query, "input": "alpha?", "output": [output]}) + "\n"


def searched(query: str, answer: str, *paragraphs: str) -> str:
    """DuReader 2.0: a question, and the documents that were found for it."""
    documents = [{"title": "", "paragraphs": [paragraph]} for paragraph in paragraphs]
    record = {
        "question_id": query,
        "question": "alpha?",
        "answers": [answer],
        "documents": documents,
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def package(name: str, description: str) -> str:
    """deb822: a package of a repository without translations."""
    return f"Package: {name}\nDescription: what {name} is\n {description}\n\n"


def listed(query: str, positive: str, *negatives: str) -> str:
    """FlagEmbedding: a training query with its positive and its negatives."""
    return (
        json.dumps({"query": query, "pos": [positive], "neg": negatives}, ensure_ascii=False) + "\n"
    )


LONG = 50_000_000
TWO = ((b"d1", b"alpha beta"), (b"d2", b"gamma"))
PART, MAP = "passage-collection/part-00", "passage-collection/passage2id.map.json"
WIKIPEDIA = {"psgs_w100.tsv": "id\ttext\ttitle\nd1\talpha beta\tOne\nd2\tgamma\t\n"}
RELATION = "dataset/test/P36.test.json"

FORMATS = {
    "beir": Format(
        {"source": "beir"},
        {
            "corpus.jsonl": '{"_id": "d1", "title": "One", "text": "alpha beta"}\n{"_id": "d2", "text": "gamma"}\n',
            "queries.jsonl": '{"_id": "q1", "text": "alpha?"}\n',
            "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        },
        '{"_id": "{0}", "text": "{1}"}\n',
        {
            "broken JSON": ("corpus.jsonl", append('{"_id": "d9", \n')),
            "wrong column count": ("qrels/test.tsv", append("q1\td1\n")),
            "unknown id in qrels": ("qrels/test.tsv", append("q1\tnone\t1\n")),
            "invalid pattern": ("answers.jsonl", replace('{"_id": "q1", "answers": ["(open"]}\n')),
        },
    ),
    "files: .tsv": own(
        "c.tsv",
        "d1\talpha beta\nd2\tgamma\n",
        "{0}\t{1}\n",
        {"wrong column count": ("c.tsv", append("d9\n"))},
    ),
    "files: .jsonl": own(
        "c.jsonl",
        '{"id": "d1", "text": "alpha beta"}\n{"id": "d2", "contents": "gamma"}\n',
        '{"id": "{0}", "text": "{1}"}\n',
        {
            "broken JSON": ("c.jsonl", append('{"id": "d9", "text": "del\n')),
            "wrong column count": ("t.txt", append("q1 0 d1\n")),
        },
    ),
    "files: .csv": own(
        "c.csv",
        "id,text\nd1,alpha beta\nd2,gamma\n",
        "{0},{1}\n",
        {"wrong column count": ("c.csv", append("d9\n"))},
        " record",
    ),
    "files: .json": own(
        "c.json",
        '[\n{"id": "d1", "text": "alpha beta"},\n{"id": "d2", "text": "gamma"}\n]\n',
        add_item,
        {"broken JSON": ("c.json", cut(3)), "wrong column count": ("t.txt", append("q1 0 d1\n"))},
        " record",
    ),
    "files: .trec": own(
        "c.trec",
        "<DOC>\n<DOCNO>d1</DOCNO>\n<TEXT>alpha beta</TEXT>\n</DOC>\n<DOC><DOCNO>d2</DOCNO>gamma</DOC>\n",
        "<DOC><DOCNO>{0}</DOCNO>{1}</DOC>\n",
        {"wrong column count": ("t.txt", append("q1\td1\t1\t0\t0\n"))},
        " record",
    ),
    "files: .parquet": own(
        "c.parquet",
        parquet(*TWO),
        add_row,
        {
            "truncated gzip": ("c.parquet", cut(8)),
            "wrong column count": ("c.parquet", replace(parquet(*((doc,) for doc, _ in TWO)))),
            "not UTF-8": ("c.parquet", replace(parquet(TWO[0], (b"d2", b"caf\xe9")))),
        },
        " record",
    ),
    "lotte": Format(
        {"source": "lotte"},
        {
            "collection.tsv": "d1\talpha beta\nd2\tgamma\n",
            "qas.search.jsonl": '{"qid": 0, "query": "alpha?", "answer_pids": ["d1"]}\n',
        },
        "{0}\t{1}\n",
        {
            "broken JSON": ("qas.search.jsonl", append('{"qid": 1, \n')),
            "wrong column count": ("collection.tsv", append("d9\n")),
            "unknown id in qrels": (
                "qas.search.jsonl",
                append('{"qid": 1, "query": "alpha?", "answer_pids": ["none"]}\n'),
            ),
        },
    ),
    "training_lists": Format(
        {"source": "training_lists", "lists": {"train": ["t.jsonl"]}},
        {"t.jsonl": listed("q1", "alpha beta") + listed("q2", "gamma", "alpha beta")},
        lambda folder, doc, text: edit(folder, "t.jsonl", append(listed("q9", text))),
        {
            "broken JSON": ("t.jsonl", append('{"query": \n')),
            "wrong column count": ("t.jsonl", append('{"query": "alpha?"}\n')),
        },
        " passage",
    ),
    "squad": Format(
        {"source": "squad", "files_of": {"test": "dev.json"}},
        {"dev.json": squad()},
        add_paragraph,
        {
            "broken JSON": ("dev.json", cut(1)),
            "50 MB line": ("dev.json", lambda data: b" " * LONG + data.replace(b"\n", b" ")),
            "invalid pattern": ("dev.json", replace(squad("(open"))),
        },
        " paragraph",
    ),
    "cmedqa2": Format(
        {"source": "cmedqa2"},
        {
            "answer.csv": "ans_id,question_id,content\nd1,q1,alpha beta\nd2,q9,gamma\n",
            "question.csv": "question_id,content\nq1,alpha?\n",
            "test_candidates.txt": "question_id,ans_id,cnt,label\nq1,d1,0,1\n",
        },
        "{0},q9,{1}\n",
        {
            "wrong column count": ("answer.csv", append("d9,q9\n")),
            "unknown id in qrels": ("test_candidates.txt", append("q1,none,1,1\n")),
        },
        " record",
    ),
    "dpr": Format(
        {"source": "dpr", "questions": {"dev": "dev.json", "test": "test.qa.csv"}},
        WIKIPEDIA | {"dev.json": pool("alpha", "d1"), "test.qa.csv": "alpha?\t['alpha']\n"},
        "{0}\t{1}\t\n",
        {
            "broken JSON": ("dev.json", cut(1)),
            "wrong column count": ("psgs_w100.tsv", append("d9\n")),
            "unknown id in qrels": ("dev.json", replace(pool("alpha", "d1", "none"))),
            "invalid pattern": ("test.qa.csv", append("beta?\t['(open']\n")),
        },
        " passage",
    ),
    "entity_questions": Format(
        {"source": "entity_questions"},
        WIKIPEDIA | {RELATION: pool("alpha")},
        "{0}\t{1}\t\n",
        {
            "broken JSON": (RELATION, cut(1)),
            "wrong column count": ("psgs_w100.tsv", append("d9\n")),
            "invalid pattern": (RELATION, replace(pool("(open"))),
        },
        " passage",
    ),
    "rocketqa": Format(
        {"source": "rocketqa"},
        {
            "para.txt": "d1\talpha beta\nd2\tgamma\n",
            "test.query.txt": "q1\talpha?\n",
            "qrels.test.tsv": "q1\td1\n",
        },
        "{0}\t{1}\n",
        {
            "wrong column count": ("para.txt", append("d9\n")),
            "unknown id in qrels": ("qrels.test.tsv", append("q1\tnone\n")),
            "invalid pattern": ("test.answers.txt", replace("q1\t(open\n")),
        },
    ),
    "rocketqa_tsv": Format(
        {"source": "rocketqa_tsv", "cross": "cross.tsv"},
        {"cross.tsv": "alpha?\tOne\talpha beta\t1\nalpha?\t-\tgamma\t0\n"},
        "alpha?\t-\t{1}\t0\n",
        {"wrong column count": ("cross.tsv", append("alpha?\tOne\n"))},
    ),
    "dureader_retrieval": Format(
        {"source": "dureader_retrieval"},
        {
            PART: "-\t-\talpha beta\t0\n-\t-\tgamma\t0\n",
            MAP: json.dumps({"0": "d1", "1": "d2"}),
            "dev/dev.json": labelled("q1", "d1"),
        },
        add_line_and_id,
        {
            "broken JSON": ("dev/dev.json", append('{"question_id": \n')),
            "wrong column count": (PART, append("-\t-\n")),
            "unknown id in qrels": ("dev/dev.json", append(labelled("q2", "none"))),
        },
    ),
    "dureader2": Format(
        {"source": "dureader2", "splits": {"dev": ["dev.json"]}, "passage_characters": 4},
        {"dev.json": searched("q1", "alpha", "alpha beta") + searched("q2", "gamma", "gamma")},
        lambda folder, _, text: edit(folder, "dev.json", append(searched("q9", "alpha", text))),
        {
            "broken JSON": ("dev.json", append('{"question_id": \n')),
            "invalid pattern": ("dev.json", append(searched("q3", "(open", "(open"))),
        },
    ),
    "kilt": Format(
        {"source": "kilt", "questions": {"test": "q-kilt.jsonl"}},
        {
            "kilt_knowledgesource.json": page("d1", "alpha beta") + page("d2", "gamma"),
            "q-kilt.jsonl": task("q1", "alpha", "d1"),
        },
        lambda folder, doc, text: edit(
            folder, "kilt_knowledgesource.json", append(page(doc, text))
        ),
        {
            "broken JSON": ("q-kilt.jsonl", append('{"id": \n')),
            "wrong column count": (
                "kilt_knowledgesource.json",
                append('{"wikipedia_id": "d9", "wikipedia_title": ""}\n'),
            ),
            "unknown id in qrels": ("q-kilt.jsonl", append(task("q2", "alpha", "none"))),
            "invalid pattern": ("q-kilt.jsonl", replace(task("q1", "(open", "d1"))),
        },
    ),
    "deb822": Format(
        {"source": "deb822"},
        {
            "Packages": package("d1", "alpha beta gamma delta epsilon")
            + package("d2", "gamma alpha beta delta zeta")
        },
        lambda folder, doc, text: edit(
            folder, "Packages", append(package(doc, text and f"{text} as one of many"))
        ),
        {"wrong column count": ("Packages", append("Package d9\n"))},
        " package",
    ),
}
