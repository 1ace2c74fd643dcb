"""All file formats of datasets for `test_bad_input.py`; a new one is an entry here and its outcomes there."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from format_kit import Format, append, appended, changed, dumps, json_line, line, replaced, row, unchecked, write


def paragraph(folder: Path, doc: str, text: str) -> None:
    """SQuAD: a passage is a paragraph, here with an id of its own."""
    document = json.loads((folder / "dev.json").read_text())
    document["data"][0]["paragraphs"].append({"id": doc, "context": text, "qas": []})
    write(folder / "dev.json", json.dumps(document, indent=0, ensure_ascii=False))


def squad(answer: str) -> str:
    asked = {"id": "q1", "question": "alpha?", "answers": [{"text": answer, "answer_start": 0}]}
    paragraphs = [{"id": "d1", "context": "alpha beta", "qas": [asked]}, {"id": "d2", "context": "gamma", "qas": []}]
    return json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}, indent=0)


def collected(folder: Path, doc: str, text: str) -> None:
    """DuReader-retrieval: a passage is a line of a part, and its id stands in the map."""
    append(folder, PART, f"-\t-\t{text}\t0\n")
    ids = json.loads((folder / MAP).read_text())
    write(folder / MAP, dumps(ids | {str(len(ids)): doc}))


def labelled(query: str, doc: str) -> str:
    told = {"question_id": query, "question": "alpha?", "answer_paragraphs": [{"paragraph_id": doc}]}
    return dumps(told) + "\n"


def found(query: str, answer: str, *paragraphs: str) -> str:
    """DuReader 2.0: a question, and the document that was found for it."""
    documents = [{"title": "", "paragraphs": [one]} for one in paragraphs]
    told = {"question_id": query, "question": "alpha?", "answers": [answer], "documents": documents}
    return dumps(told) + "\n"


def pool(answer: str, *docs: str) -> str:
    """DPR: a question, and the passages that it is trained on."""
    positives = [{"title": "", "text": "", "passage_id": doc} for doc in docs]
    return dumps([{"question": "alpha?", "answers": [answer], "positive_ctxs": positives}])


def own(corpus: str, content: Any, **more: Any) -> Format:
    """Files of one's own that differ in the corpus."""
    params = {"corpus": corpus, "queries": {"test": "q.tsv"}, "qrels": {"test": "t.txt"}, "answers": "a.tsv"}
    files = {corpus: content, "q.tsv": "q1\talpha?\n", "t.txt": "q1 0 d1 1\n", "a.tsv": "q1\talpha\n"}
    spoil = {
        "unknown id in qrels": appended("t.txt", "q1 0 none 1\n"),
        "invalid pattern": replaced("a.tsv", "q1\t(open\n"),
    }
    return Format({"source": "files", **params}, files, corpus, spoil=spoil | more.pop("spoil"), **more)


PART, MAP = "passage-collection/part-00", "passage-collection/passage2id.map.json"
PASSAGES = {"psgs_w100.tsv": "id\ttext\ttitle\nd1\talpha beta\tOne\nd2\tgamma\t\n"}
RELATION = "dataset/test/P36.test.json"
TREC = "<DOC>\n<DOCNO>d1</DOCNO>\n<TEXT>alpha beta</TEXT>\n</DOC>\n<DOC><DOCNO>d2</DOCNO>gamma</DOC>\n"
PARQUET = pa.table({"doc_id": ["d1", "d2"], "text": ["alpha beta", "gamma"]})
WRONG_PARQUET = pa.table({"doc_id": unchecked(b"d1", b"d2"), "text": unchecked(b"alpha beta", b"caf\xe9")})

FORMATS: dict[str, Format] = {
    "beir": Format(
        {"source": "beir"},
        {
            "corpus.jsonl": '{"_id": "d1", "title": "One", "text": "alpha beta"}\n{"_id": "d2", "text": "gamma"}\n',
            "queries.jsonl": '{"_id": "q1", "text": "alpha?"}\n',
            "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        },
        "corpus.jsonl",
        json_line("corpus.jsonl", "_id"),
        spoil={
            "broken JSON": appended("corpus.jsonl", '{"_id": "d9", \n'),
            "wrong column count": appended("qrels/test.tsv", "q1\td1\n"),
            "unknown id in qrels": appended("qrels/test.tsv", "q1\tnone\t1\n"),
            "invalid pattern": replaced("answers.jsonl", '{"_id": "q1", "answers": ["(open"]}\n'),
        },
    ),
    "files: .tsv": own(
        "c.tsv",
        "d1\talpha beta\nd2\tgamma\n",
        add=line("c.tsv", "{0}\t{1}\n"),
        spoil={"wrong column count": appended("c.tsv", "d9\n")},
    ),
    "files: .jsonl": own(
        "c.jsonl",
        '{"id": "d1", "text": "alpha beta"}\n{"id": "d2", "contents": "gamma"}\n',
        add=json_line("c.jsonl", "id"),
        spoil={
            "broken JSON": appended("c.jsonl", '{"id": "d9", "text": "del\n'),
            "wrong column count": appended("t.txt", "q1 0 d1\n"),
        },
    ),
    "files: .trec": own(
        "c.trec",
        TREC,
        add=line("c.trec", "<DOC><DOCNO>{0}</DOCNO>{1}</DOC>\n"),
        place="{0}/c.trec record",
        spoil={"wrong column count": appended("t.txt", "q1\td1\t1\t0\t0\n")},
    ),
    "files: .parquet": own(
        "c.parquet",
        PARQUET,
        add=row("c.parquet"),
        place="{0}/c.parquet record",
        spoil={
            "truncated gzip": changed("c.parquet", lambda data: data[:-8]),
            "wrong column count": replaced("c.parquet", PARQUET.drop_columns(["text"])),
            "not UTF-8": replaced("c.parquet", WRONG_PARQUET),
        },
    ),
    "squad": Format(
        {"source": "squad", "files_of": {"test": "dev.json"}},
        {"dev.json": squad("alpha")},
        "dev.json",
        paragraph,
        place="{0}/dev.json paragraph",
        spoil={
            "broken JSON": changed("dev.json", lambda data: data[:-1]),
            "50 MB line": changed("dev.json", lambda data: b" " * 50_000_000 + data.replace(b"\n", b" ")),
            "invalid pattern": replaced("dev.json", squad("(open")),
        },
    ),
    "cmedqa2": Format(
        {"source": "cmedqa2"},
        {
            "question.csv": "question_id,content\nq1,alpha?\n",
            "answer.csv": "ans_id,question_id,content\nd1,q1,alpha beta\nd2,q9,gamma\n",
            "test_candidates.txt": "question_id,ans_id,cnt,label\nq1,d1,0,1\n",
        },
        "answer.csv",
        line("answer.csv", "{0},q9,{1}\n"),
        place="{0}/answer.csv record",
        spoil={
            "wrong column count": appended("answer.csv", "d9,q9\n"),
            "unknown id in qrels": appended("test_candidates.txt", "q1,none,1,1\n"),
        },
    ),
    "dpr": Format(
        {"source": "dpr", "questions": {"dev": "dev.json", "test": "test.qa.csv"}},
        PASSAGES | {"dev.json": pool("alpha", "d1"), "test.qa.csv": "alpha?\t['alpha']\n"},
        "psgs_w100.tsv",
        line("psgs_w100.tsv", "{0}\t{1}\t\n"),
        place="{0}/psgs_w100.tsv passage",
        spoil={
            "broken JSON": changed("dev.json", lambda data: data[:-1]),
            "wrong column count": appended("psgs_w100.tsv", "d9\n"),
            "unknown id in qrels": replaced("dev.json", pool("alpha", "d1", "none")),
            "invalid pattern": appended("test.qa.csv", "beta?\t['(open']\n"),
        },
    ),
    "entity_questions": Format(
        {"source": "entity_questions"},
        PASSAGES | {RELATION: pool("alpha")},
        "psgs_w100.tsv",
        line("psgs_w100.tsv", "{0}\t{1}\t\n"),
        place="{0}/psgs_w100.tsv passage",
        spoil={
            "broken JSON": changed(RELATION, lambda data: data[:-1]),
            "wrong column count": appended("psgs_w100.tsv", "d9\n"),
            "invalid pattern": replaced(RELATION, pool("(open")),
        },
    ),
    "rocketqa": Format(
        {"source": "rocketqa"},
        {"para.txt": "d1\talpha beta\nd2\tgamma\n", "test.query.txt": "q1\talpha?\n", "qrels.test.tsv": "q1\td1\n"},
        "para.txt",
        line("para.txt", "{0}\t{1}\n"),
        spoil={
            "wrong column count": appended("para.txt", "d9\n"),
            "unknown id in qrels": appended("qrels.test.tsv", "q1\tnone\n"),
            "invalid pattern": replaced("test.answers.txt", "q1\t(open\n"),
        },
    ),
    "rocketqa_tsv": Format(
        {"source": "rocketqa_tsv", "cross": "cross.tsv"},
        {"cross.tsv": "alpha?\tOne\talpha beta\t1\nalpha?\t-\tgamma\t0\n"},
        "cross.tsv",
        line("cross.tsv", "alpha?\t-\t{1}\t0\n"),
        spoil={"wrong column count": appended("cross.tsv", "alpha?\tOne\n")},
    ),
    "dureader_retrieval": Format(
        {"source": "dureader_retrieval"},
        {
            PART: "-\t-\talpha beta\t0\n-\t-\tgamma\t0\n",
            MAP: dumps({"0": "d1", "1": "d2"}),
            "dev/dev.json": labelled("q1", "d1"),
        },
        PART,
        collected,
        place="{0}/passage-collection/part-*",
        spoil={
            "broken JSON": appended("dev/dev.json", '{"question_id": \n'),
            "wrong column count": appended(PART, "-\t-\n"),
            "unknown id in qrels": appended("dev/dev.json", labelled("q2", "none")),
        },
    ),
    "dureader2": Format(
        {"source": "dureader2", "splits": {"dev": ["dev.json"]}, "passage_characters": 4},
        {"dev.json": found("q1", "alpha", "alpha beta", "gamma")},
        "dev.json",
        lambda folder, _, text: append(folder, "dev.json", found("q9", "alpha", text)),
        spoil={
            "broken JSON": appended("dev.json", '{"question_id": \n'),
            "invalid pattern": appended("dev.json", found("q2", "(open", "(open")),
        },
    ),
}
