import gzip
import json
import random
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from messages import unknown_key

from tandem.contrib.formats.readers import choose_reader, read_head, read_parquet
from tandem.contrib.formats.roles import PASSAGES_ROLE, QRELS_ROLE, QUERIES_ROLE
from tandem.contrib.formats.trec import read_topics, read_trec
from tandem.data.collection import Collection
from tandem.data.reading import iterate_lines, read_text
from tandem.errors import UserError

PASSAGE_ROWS = [("d1", "One", "alpha beta"), ("d2", "", "gamma")]
QUERY_ROWS = [("q1", "alpha?"), ("q2", "gamma?")]


def jsonl(rows, *names):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def separated(rows, by="\t"):
    return "".join(by.join(row) + "\n" for row in rows)


CORPORA = {
    "c.tsv": separated(PASSAGE_ROWS),
    "headed.tsv": "Text\ttitle\tdoc_id\n"
    + separated((text, title, doc) for doc, title, text in PASSAGE_ROWS),
    "beir.jsonl": jsonl(PASSAGE_ROWS, "_id", "title", "text"),
    "anserini.jsonl": jsonl(PASSAGE_ROWS, "id", "title", "contents"),
    "c.trec": "<DOC>\n<DOCNO> d1 </DOCNO>\n<TITLE>One</TITLE>\n<TEXT>\nalpha\nbeta\n</TEXT>\n</DOC>\n"
    "<DOC><DOCNO>d2</DOCNO>gamma</DOC>\n",
}
QUERIES = {
    "q.tsv": separated(QUERY_ROWS),
    "headed.tsv": "qid\tquery\n" + separated(QUERY_ROWS),
    "q.jsonl": jsonl(QUERY_ROWS, "query_id", "text"),
}
QRELS_TEXTS = {
    "trec.qrels": "q1 0 d1 1\nq2  0\td2 2\n".replace("\t", " "),
    "msmarco.tsv": "q1\t0\td1\t1\nq2\t0\td2\t2\n",
    "beir.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n",
    "bare.txt": "q1\td1\t1\nq2\td2\t2\n",
}


@pytest.fixture
def built(tmp_path, make):
    """`built(corpus, queries, qrels)`: a dataset of (name, content) each, text gzipped where the name says so."""

    def build(corpus, queries, qrels, /, **more):
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        for kind, (name, content) in {"corpus": corpus, "queries": queries, "qrels": qrels}.items():
            path = folder / kind / name
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, pa.Table):
                pq.write_table(content, path)
            else:
                path.write_bytes(
                    gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
                )
        params = {
            "source": "files",
            "corpus": f"corpus/{corpus[0]}",
            "queries": {"test": f"queries/{queries[0]}"},
            "qrels": {"test": f"qrels/{qrels[0]}"},
        }
        return Collection(make("d", params | more, path=str(folder)))

    return build


def read_all(collection):
    return collection.texts(["d1", "d2"]), collection.queries("test"), collection.qrels("test")


WORDS = [("d1", "alpha beta"), ("d2", "gamma delta"), ("d3", "one more")]
NAMED = [(doc.replace("d", "river-").replace("1", "a"), text) for doc, text in WORDS]


@pytest.mark.parametrize(("name", "by"), [("c.tsv", "\t"), ("c.csv", ",")])
@pytest.mark.parametrize(
    ("first", "rows", "line"),
    [
        (("key", "html"), WORDS, "key, html look like the names of columns, and none means id; "),
        (("key", "text"), WORDS, "key, text look like the names .* id; allowed: _id, id, doc_id"),
        (("key", "h", "page"), [(doc, "One", text) for doc, text in WORDS], "none means id"),
        # records: an id with a digit, a word twice, an id below without a digit, a text of one word, too few to tell
        (("d0", "otters"), WORDS, None),
        (("otter", "otter"), WORDS, None),
        (("otter", "mammal"), NAMED, None),
        (("otter", "mammal"), [*WORDS[:2], ("d3", "one")], None),
        (("otter", "mammal"), WORDS[:2], None),
    ],
)
def test_a_header_of_unknown_names_is_no_record(tmp_path, name, by, first, rows, line):
    path = tmp_path / name
    path.write_text(separated([first, *rows], by))
    records = choose_reader(path, PASSAGES_ROLE)(path, PASSAGES_ROLE)
    if line is None:
        assert len(list(records)) == 1 + len(rows)
        return
    with pytest.raises(UserError, match=rf"{name}:1: .*{line}") as error:
        list(records)
    assert "\n" not in str(error.value)


SAME = (
    {"d1": ("One", "alpha beta"), "d2": ("", "gamma")},
    {"q1": "alpha?", "q2": "gamma?"},
    {"q1": {"d1": 1}, "q2": {"d2": 2}},
)


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_format_gives_the_same_passages(name, packed, built):
    content = CORPORA[name]
    collection = built(
        (name + packed, content), ("q.tsv", QUERIES["q.tsv"]), ("t.tsv", QRELS_TEXTS["beir.tsv"])
    )
    assert read_all(collection) == SAME
    assert collection.artifact.manifest.facts["warnings"] == []


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", QUERIES)
def test_every_query_format_gives_the_same_queries(name, packed, built):
    collection = built(
        ("c.tsv", CORPORA["c.tsv"]),
        (name + packed, QUERIES[name]),
        ("t.tsv", QRELS_TEXTS["beir.tsv"]),
    )
    assert read_all(collection) == SAME


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", QRELS_TEXTS)
def test_every_qrels_format_gives_the_same_judgements(name, packed, built):
    collection = built(
        ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", QUERIES["q.tsv"]), (name + packed, QRELS_TEXTS[name])
    )
    assert read_all(collection) == SAME


def test_parquet_of_all_three_with_whole_numbers_as_ids_and_other_columns(built):
    corpus = pa.table(
        {"url": ["a", "b"], "id": [1, 2], "text": pa.array(["alpha", "gamma"], pa.large_string())}
    )
    queries = pa.table({"query_id": [7], "text": ["alpha?"]})
    qrels = pa.table({"query_id": [7, 7], "doc_id": [2, 1], "relevance": [0, 3]})
    collection = built(("c.parquet", corpus), ("q.parquet", queries), ("t.parquet", qrels))
    assert collection.texts(["1", "2"]) == {"1": ("", "alpha"), "2": ("", "gamma")}
    assert collection.queries("test") == {"7": "alpha?"}
    assert collection.qrels("test") == {"7": {"2": 0, "1": 3}}


def test_qrels_of_two_columns_are_positives(built):
    collection = built(
        ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", QUERIES["q.tsv"]), ("t.tsv", "q1\td1\nq2\td2\n")
    )
    assert collection.qrels("test") == {"q1": {"d1": 1}, "q2": {"d2": 1}}


def test_judgements_of_another_split_than_the_query_s_are_counted(built, tmp_path):
    files = ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", QUERIES["q.tsv"])
    (tmp_path / "mine/qrels").mkdir(parents=True)
    (tmp_path / "mine/qrels/dev.tsv").write_text("q2\td2\n")
    apart = built(
        *files, ("t.tsv", "q1\td1\n"), qrels={"test": "qrels/t.tsv", "dev": "qrels/dev.tsv"}
    )
    assert apart.qrels("test") == {"q1": {"d1": 1}}
    assert apart.artifact.manifest.facts["warnings"] == [
        "1 queries have judgements in other splits alone, which were dropped"
    ]


def test_one_file_of_judgements_may_be_that_of_several_splits(built, tmp_path):
    files = ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", "q1\talpha?\n")
    (tmp_path / "mine/queries").mkdir(parents=True)
    (tmp_path / "mine/queries/train.tsv").write_text("q2\tgamma?\n")
    shared = built(
        *files,
        ("all.tsv", "q1\td1\nq2\td2\nq3\td1\n"),
        queries={"train": "queries/train.tsv", "test": "queries/q.tsv"},
        qrels={"train": "qrels/all.tsv", "test": "qrels/all.tsv"},
    )
    assert (shared.qrels("train"), shared.qrels("test")) == ({"q2": {"d2": 1}}, {"q1": {"d1": 1}})
    assert shared.artifact.manifest.facts["warnings"] == [
        "1 queries of the qrels are not among the queries; their qrels are dropped"
    ]


def test_a_query_that_is_judged_in_several_splits_is_of_its_file_s(built, tmp_path):
    # q1 is asked in the file of test alone, and judged in dev too
    files = ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", "q1\talpha?\n")
    (tmp_path / "mine/qrels").mkdir(parents=True)
    (tmp_path / "mine/qrels/dev.tsv").write_text("q1\td2\nq2\td2\n")
    (tmp_path / "mine/queries").mkdir(parents=True)
    (tmp_path / "mine/queries/dev.tsv").write_text("q2\tgamma?\n")
    queries = {"test": "queries/q.tsv", "dev": "queries/dev.tsv"}
    split = built(
        *files,
        ("t.tsv", "q1\td1\n"),
        queries=queries,
        qrels={"test": "qrels/t.tsv", "dev": "qrels/dev.tsv"},
    )
    assert (split.qrels("test"), split.qrels("dev")) == ({"q1": {"d1": 1}}, {"q2": {"d2": 1}})
    assert split.artifact.manifest.facts["warnings"] == [
        "1 queries are judged in several splits; that of their file keeps them"
    ]


def test_judgements_of_which_none_is_left_are_refused(built):
    files = ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", QUERIES["q.tsv"]), ("t.tsv", "q1\td1\n")
    with pytest.raises(
        UserError, match=r"qrels.dev: queries has no such split, and test has no qrels"
    ):
        built(*files, qrels={"dev": "qrels/t.tsv"})


def test_a_pattern_reads_packed_parts_too_and_of_both_the_plain_one(built, tmp_path):
    parts = tmp_path / "mine" / "parts"
    parts.mkdir(parents=True)
    (parts / "a.tsv").write_text("d1\talpha\n")
    (parts / "a.tsv.gz").write_bytes(gzip.compress(b"d1\told\n"))
    (parts / "b.tsv.gz").write_bytes(gzip.compress(b"d2\tgamma\n"))
    collection = built(
        ("c.tsv", ""), ("q.tsv", "q1\tx\n"), ("t.tsv", "q1\td2\n"), corpus="parts/*.tsv"
    )
    assert collection.texts(["d1", "d2"]) == {"d1": ("", "alpha"), "d2": ("", "gamma")}


def test_a_column_without_a_name_is_no_title(built):
    """As pandas writes its index."""
    collection = built(
        ("c.csv", ",id,text\n0,d1,alpha\n1,d2,gamma\n"), ("q.tsv", "q1\tx\n"), ("t.tsv", "q1\td2\n")
    )
    assert collection.texts(["d1", "d2"]) == {"d1": ("", "alpha"), "d2": ("", "gamma")}


def test_a_pattern_reads_parts_by_name(built, tmp_path):
    (tmp_path / "mine" / "parts").mkdir(parents=True)
    (tmp_path / "mine" / "parts" / "b.tsv").write_text("d2\tgamma\n")
    (tmp_path / "mine" / "parts" / "a.tsv").write_text("d9\tdelta\n")
    collection = built(
        ("c.tsv", ""), ("q.tsv", "q1\tx\n"), ("t.tsv", "q1\td2\n"), corpus="parts/*.tsv"
    )
    assert collection.doc_ids().to_pylist() == ["d9", "d2"]


def test_one_file_of_queries_for_several_splits_is_divided_by_the_qrels(built, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.txt").write_text("q2 0 d2 1\n")
    collection = built(
        ("c.tsv", CORPORA["c.tsv"]),
        ("q.tsv", QUERIES["q.tsv"]),
        ("t.tsv", "q1\td1\n"),
        queries={"train": "queries/q.tsv", "test": "queries/q.tsv"},
        qrels={"train": "train.txt", "test": "qrels/t.tsv"},
    )
    assert (collection.queries("train"), collection.queries("test")) == (
        {"q2": "gamma?"},
        {"q1": "alpha?"},
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "q1\talpha\tbeta\nq2\tgamma\n"),
        ("a.tsv", "query_id\tanswer\nq1\talpha\tbeta\nq2\tgamma\n\n"),
        ("a.tsv", "question_id\tanswer\nq1\talpha\tbeta\nq2\tgamma\n"),
        ("a.csv", "id,answer\nq1,alpha,beta\nq2,gamma\n"),
        ("a.csv", '"id";answer\nq1;alpha;"beta"\nq2;gamma\n'),
        ("a.tsv", "#id\tanswer\nq1\talpha\tbeta\nq2\tgamma\n"),
        ("a.csv", "# query_id,answer\nq1,alpha,beta\nq2,gamma\n"),
        ("a.csv", "#id;answer\nq1;alpha;beta\nq2;gamma\n"),
        (
            "a.jsonl",
            '{"_id": "q1", "answers": ["alpha", "beta"]}\n{"_id": "q2", "answers": ["gamma"]}\n',
        ),
    ],
)
def test_answers_alone_make_a_test_set(name, content, built, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text(content)
    corpus, queries = ("c.tsv", CORPORA["c.tsv"]), ("q.tsv", QUERIES["q.tsv"])
    collection = built(corpus, queries, ("unused.tsv", ""), qrels={}, answers=name)
    assert collection.answers("test") == {"q1": ["alpha", "beta"], "q2": ["gamma"]}
    assert collection.artifact.manifest.facts["qrels"] == {"test": 0}


def test_trec_text_loses_tags_references_and_line_ends(tmp_path):
    path = tmp_path / "a.trec"
    path.write_text(
        '<?xml version="1.0"?>\n<doc><docno>AP-1</docno><HEADLINE>Bulls &amp;\nBears</HEADLINE> <DATE>1990</DATE>\n'
        "<TEXT><P>Profit &lt; loss,</P>\n<!-- page\n2 -->a < b > c</TEXT><TEXT>&eacute;nd</TEXT></doc>\n"
        "<DOC>\n<DOCNO>AP-2</DOCNO>\n<DATE>1991</DATE> All of it.\n</DOC>"
    )
    assert list(read_trec(path, PASSAGES_ROLE)) == [
        (
            f"{path}:2",
            {"id": "AP-1", "title": "Bulls & Bears", "text": "Profit < loss, a < b > c énd"},
        ),
        (f"{path}:7", {"id": "AP-2", "title": "", "text": "1991 All of it."}),
    ]


def test_the_marks_of_xmls_literal_texts_are_no_text(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(
        "<DOC><DOCNO><![CDATA[d1]]></DOCNO><TITLE><![CDATA[R & D]]></TITLE>\n"
        "<TEXT><![CDATA[a < b,\n<p>c</p>]]> and <![CDATA[d]]></TEXT></DOC>\n"
    )
    [(_, passage)] = read_trec(path, PASSAGES_ROLE)
    assert passage == {"id": "d1", "title": "R & D", "text": "a < b, c and d"}
    path.write_text(
        '<topic number="1">\n<title><![CDATA[where is <i>it</i>?]]></title>\n</topic>\n'
    )
    [(_, query)] = read_topics(path, QUERIES_ROLE)
    assert query == {"id": "1", "text": "where is it ?"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<DOC>\n<DOC>\n", "{}:2: <DOC> inside the document of line 1; end that with </DOC>"),
        ("\n</DOC>\n", "{}:2: </DOC> without <DOC>; a document is <DOC> … </DOC>"),
        ("<DOC>x</DOC>", "{}:1: document without <DOCNO>; give it one"),
        (
            "\n<DOC>x\n",
            "{}:2: no </DOC> up to the end of the file; end the document or fetch the file again",
        ),
    ],
)
def test_trec_documents_that_do_not_end_or_begin(content, message, tmp_path):
    path = tmp_path / "a.trec"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        list(read_trec(path, PASSAGES_ROLE))
    assert str(error.value) == message.format(path)


def test_a_header_is_told_from_a_record(tmp_path):
    path = tmp_path / "a.tsv"
    for line, fields in {
        "id\ttext\ttitle": ("id", "text", "title"),  # DPR's order
        "1\ttext": None,
        "id\ttext\turl": ("id", "text", "-"),
        "id\tcontents\ttext": ("id", "-", "text"),  # of two names of the text the usual one
        "docno\tbody": ("id", "text"),
        "Document_ID\ttitle\tcontent": ("id", "title", "text"),
        "text\tid of it": None,
    }.items():
        path.write_text(f"{line}\n")
        assert read_head(path, PASSAGES_ROLE).columns == fields
    for line in ("id\ttitle", "docno\tlong text"):
        path.write_text(f"{line}\n")
        with pytest.raises(UserError, match=r"a\.tsv:1: no text; a field named text or "):
            read_head(path, PASSAGES_ROLE)
    path.write_text("query-id\tcorpus-id\n")
    assert read_head(path, QRELS_ROLE).columns == ("query", "document")
    path.write_text("qid\tdocno\tlabel\n")
    assert read_head(path, QRELS_ROLE).columns == ("query", "document", "relevance")


@pytest.mark.parametrize(
    ("name", "role", "content", "message"),
    [
        # a text with a tab or a comma would lose its beginning to a title
        ("c.tsv", PASSAGES_ROLE, "d1\ta\nd2\tb\tc\n", "c.tsv:2: 3 columns by tabs; the first line has 2"),
        ("c.csv", PASSAGES_ROLE, "d1,a\nd2,b,c\n", "c.csv:2: 3 columns by commas; the first row has 2"),
        ("c.tsv", PASSAGES_ROLE, "d1\tA\ta\nd2\tB\n", "c.tsv:2: 2 columns by tabs; the first line has 3"),
        # the end of a download that was cut: a grade of 0 would become 1
        ("t.tsv", QRELS_ROLE, "q1\td1\t1\nq1\td2", "t.tsv:2: 2 columns by tabs; the first line has 3"),
        ("t.tsv", QRELS_ROLE, "# run 1\nq1 0 d1 1\nq1\td2\t1", "t.tsv:3: 3 columns by tabs; the first line has 4"),
        ("t.csv", QRELS_ROLE, "q1,d1,1\nq1,d2\n", "t.csv:2: 2 columns by commas; the first row has 3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("skipped", [0, 1])
def test_a_line_of_other_columns_than_the_first_is_refused(
    name, role, content, message, skipped, tmp_path
):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError) as error:
        list(choose_reader(path, role)(path, role, skipped))
    assert str(error.value) == f"{tmp_path}/{message}"


def test_a_zip_that_is_locked_or_of_another_compression_is_named(tmp_path):
    path = tmp_path / "a.tsv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.tsv", "1\ttext\n")
    whole, at = path.read_bytes(), path.read_bytes().index(b"PK\x01\x02")
    for first, second in ((b"\x01", b"\x00"), (b"\x00", b"\x63")):
        # encrypted; an unknown compression
        changed = (
            whole[:6]
            + first
            + whole[7:8]
            + second
            + whole[9 : at + 8]
            + first
            + whole[at + 9 : at + 10]
            + second
        )
        path.write_bytes(changed + whole[at + 11 :])
        with pytest.raises(UserError, match=f"^{path}: .*; unpack it and name its file$"):
            list(iterate_lines(path))


def test_of_two_columns_of_one_name_none_is_meant(tmp_path):
    columns = [pa.array(["1"]), pa.array(["words"]), pa.array(["others"])]
    pq.write_table(pa.table(columns, names=["id", "text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: several columns text; rename"):
        list(read_parquet(tmp_path / "a.parquet", PASSAGES_ROLE))


@pytest.mark.parametrize(("name", "between"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_header_that_names_a_column_twice_is_refused(tmp_path, name, between):
    rows = (("id", "text", "text"), ("d1", "words", "others"))
    path = tmp_path / name
    path.write_text("".join(between.join(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=rf"{name}:1: several columns text; rename"):
        list(choose_reader(path, PASSAGES_ROLE)(path, PASSAGES_ROLE))


def test_a_column_of_bytes_is_no_text(tmp_path):
    pq.write_table(pa.table({"id": ["1"], "text": [b"words"]}), tmp_path / "a.parquet")
    ((where, record),) = read_parquet(tmp_path / "a.parquet", PASSAGES_ROLE)
    with pytest.raises(UserError, match=r"a.parquet row 1: text is \"b'words'\"; a text is needed"):
        read_text(where, record, "text")


BESIDE = {
    "empty.tsv": "",
    "bare.tsv": "q1\n",
    "blank.csv": "q1,alpha\n\nq2,gamma\n",
    "twice.jsonl": '{"_id": "q1", "answers": ["a"]}\n{"_id": "q2", "answers": ["b"]}\n'
    '{"_id": "q1", "answers": ["c"]}\n',
    "bare.jsonl": '{"_id": "q1", "answers": "alpha"}\n',
    "large.tsv": f"q1\td1\t{2**31}\n",
    "graded.tsv": "query_id\tdoc_id\tgrade\nq1\td1\t0\n",
    "graded.jsonl": '{"query_id": "q1", "doc_id": "d1", "grade": 0}\n',
    "topics.tsv": "qid\ttopic\nq1\talpha?\n",
}
WRONG = {
    "no corpus": ({"corpus": None}, "corpus: None; the file with the passages is needed"),
    "a pattern over folders": (
        {"corpus": "parts**"},
        "corpus is parts**; of a pattern each `*` is",
    ),
    "a pattern from the root": (
        {"corpus": "/data/*.tsv"},
        "corpus is /data/*.tsv; of a pattern each `*` is",
    ),
    "no queries": (
        {"queries": {}},
        "queries: none; a file of at least one split is needed, as in queries: {test: test.tsv}",
    ),
    "queries of no split": (
        {"queries": "q.tsv"},
        "queries is ",
    ),
    "unknown end": (
        {"corpus": "qrels/t.qrels"},
        "{0}/qrels/t.qrels: a file that ends in .qrels; allowed are .jsonl, .ndjson, .json, .parquet, .csv, .tsv,"
        " .txt, .trec, .xml, all but .parquet also .gz, .zst, .bz2, .xz, .lz4, .zip",
    ),
    "missing": (
        {"qrels": {"test": "none.txt"}},
        "{0}: holds no none.txt (plain or packed); put it there",
    ),
    "empty queries": (
        {"queries": {"test": "qrels/empty.tsv"}},
        "{0}/qrels/empty.tsv: empty; name a file with records, or leave this one out",
    ),
    "empty qrels of one split": (
        {"qrels": {"test": "qrels/t.qrels", "dev": "qrels/empty.tsv"}},
        "{0}/qrels/empty.tsv: empty; name a file with records, or leave this one out",
    ),
    "empty answers": (
        {"answers": "qrels/empty.tsv"},
        "{0}/qrels/empty.tsv: empty; name a file with records, or leave this one out",
    ),
    "answers without an answer": (
        {"answers": "qrels/bare.tsv"},
        "{0}/qrels/bare.tsv:1: 1 column by tabs; a line is id, answer, …, by tabs",
    ),
    "an empty line between answers": (
        {"answers": "qrels/blank.csv"},
        "{0}/qrels/blank.csv:2: an empty line; remove it",
    ),
    "a query twice among answers": (
        {"answers": "qrels/twice.jsonl"},
        "{0}/qrels/twice.jsonl:3: query id 'q1' again, first at {0}/qrels/twice.jsonl:1;",
    ),
    "answers that are no list": (
        {"answers": "qrels/bare.jsonl"},
        '{0}/qrels/bare.jsonl:1: answers is "alpha"; a list of texts is needed',
    ),
    "a relevance that is too large": (
        {"qrels": {"test": "qrels/large.tsv"}},
        "{0}/qrels/large.tsv:1: relevance is 2147483648; a whole number of 32 bits is needed",
    ),
    "a header without the relevance": (
        {"qrels": {"test": "qrels/graded.tsv"}},
        "{0}/qrels/graded.tsv:1: no relevance; a field named relevance or score or rel or label is needed",
    ),
    "records without the relevance": (
        {"qrels": {"test": "qrels/graded.jsonl"}},
        "{0}/qrels/graded.jsonl:1: no relevance; a field named relevance or score or rel or label is needed",
    ),
    "a header that would be a query": (
        {"queries": {"test": "qrels/topics.tsv"}},
        "{0}/qrels/topics.tsv:1: no text; a field named text or query or question is needed",
    ),
    "unknown key": (
        {"corpora": "c.tsv"},
        unknown_key("corpora", "corpus"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_configurations(name, built, tmp_path):
    more, message = WRONG[name]
    (tmp_path / "mine" / "qrels").mkdir(parents=True)
    for file, content in BESIDE.items():
        (tmp_path / "mine" / "qrels" / file).write_text(content)
    with pytest.raises(UserError) as error:
        built(
            ("c.tsv", CORPORA["c.tsv"]),
            ("q.tsv", QUERIES["q.tsv"]),
            ("t.qrels", "q1 0 d1 1\n"),
            **more,
        )
    assert str(error.value).startswith(message.replace("{0}", str(tmp_path / "mine")))


def test_large_parquet_row_groups_are_streamed_in_order(built):
    ids = [f"d{number}" for number in range(5000)]
    texts = [random.Random(number).randbytes(8).hex() for number in range(5000)]
    corpus = pa.table({"_id": ids, "contents": texts})
    collection = built(("c.parquet", corpus), ("q.tsv", "q1\tx\n"), ("t.tsv", "q1\td4999\n"))
    assert collection.doc_ids().to_pylist() == ids
    assert collection.texts(["d4999"]) == {"d4999": ("", texts[4999])}
