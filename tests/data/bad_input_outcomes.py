"""What becomes of every fault in every file format: asserted by `test_bad_input.py`, shown by docs/formats.md."""

from dataclasses import dataclass

from bad_input_formats import FORMATS

LONG = 50_000_000


@dataclass(frozen=True)
class Outcome:
    """What becomes of a fault: its sign in the docs' table, and the message or what the collection holds then."""

    sign: str
    told: str = ""


def refused(message):
    return Outcome("R", message)


def counted(*warnings):
    return Outcome("C", "\n".join(warnings))


def kept(value):
    return Outcome("K", value)


SAME, ABSENT = Outcome("="), Outcome("–")

# {0} is the folder, {corpus} its file with the passages, {lines} the number of lines that it had, {last} that it has;
# {line} and {byte} are where the byte stands that is no UTF-8.
UNKNOWN = "1 judgements name documents that the corpus lacks and are kept: no run can find them"
USUAL = {
    "truncated gzip": refused("{corpus}.gz: gzip file is truncated after line {lines}; fetch it again"),
    "broken JSON": ABSENT,
    "wrong column count": ABSENT,
    "duplicate id": refused("{place}:3: document id 'd1' again, first at 1; every id must be unique"),
    "unknown id in qrels": counted(UNKNOWN),
    "empty passage": counted("1 passages hold no text"),
    "not UTF-8": refused(
        "{corpus}:{line}: not UTF-8, invalid continuation byte at byte {byte} of the line; convert the file to UTF-8"
    ),
    "Windows newlines": SAME,
    "byte-order mark": SAME,
    "id with a space": refused("{place}:3: document id 'd 9'; an id must not be empty or hold white space"),
    "id with a slash": kept("a/d9"),
    "50 MB line": refused("{corpus}:{last}: longer than 32 MiB; split it or mend its line ends"),
    "invalid pattern": kept("(open"),
    "empty file": refused("{place}: the corpus is empty; at least one passage is needed"),
    "blank line": refused("{corpus}:2: not valid JSON, Expecting value at column 1; one JSON object a line is allowed"),
}
QRELS_LINE = (
    "a line is query id, 0, document id, relevance by white space, or query id, document id[, relevance] by tabs"
)
UNREADABLE = "{corpus}: no readable Parquet after row 0 "
NO_QRELS = "qrels: empty; a dataset needs judgements of at least one split, or answers"
OWN_IDS = dict.fromkeys(("duplicate id", "id with a space", "id with a slash", "unknown id in qrels"), ABSENT)
DPR_LINE = "columns by tabs; a line is id, text, title: 3 columns"
EXPECTED = {
    "beir": {
        "broken JSON": refused(
            "{corpus}:3: not valid JSON, Expecting property name enclosed in double quotes at column 15;"
            " one JSON object a line is allowed"
        ),
        "wrong column count": refused("{0}/qrels/test.tsv:3: 2 columns by tabs; the header names 3"),
    },
    "files: .tsv": {
        "wrong column count": refused("{corpus}:3: 1 columns by tabs; a line is id, text or id, title, text, by tabs"),
        "blank line": refused("{corpus}:2: 1 columns by tabs; a line is id, text or id, title, text, by tabs"),
    },
    "files: .jsonl": {
        "broken JSON": refused(
            "{corpus}:3: not valid JSON, Unterminated string starting at at column 22;"
            " one JSON object a line is allowed"
        ),
        "wrong column count": refused("{0}/t.txt:2: 3 columns by white space; " + QRELS_LINE),
    },
    "files: .trec": {
        "wrong column count": refused("{0}/t.txt:2: 5 columns by tabs; " + QRELS_LINE),
        "blank line": SAME,
    },
    "files: .parquet": {
        "truncated gzip": refused(
            UNREADABLE + "(Parquet magic bytes not found in footer. Either the file is corrupted or this is not a"
            " parquet file.); write or fetch it again"
        ),
        "wrong column count": refused("{corpus}: no text; a field named text or contents is needed"),
        "not UTF-8": refused("{corpus}: not UTF-8 after row 0, unexpected end of data; write its texts as UTF-8"),
        "Windows newlines": ABSENT,
        "byte-order mark": ABSENT,
        "50 MB line": kept("x" * LONG),
        "empty file": refused(UNREADABLE + "(Parquet file size is 0 bytes); write or fetch it again"),
        "blank line": ABSENT,
    },
    "squad": {
        "broken JSON": refused(
            "{corpus}:{last}: not valid JSON, Expecting ',' delimiter at column 2; mend it or fetch the file again"
        ),
        "unknown id in qrels": ABSENT,
        "50 MB line": SAME,
        "empty file": refused(
            "{corpus}:1: not valid JSON, Expecting value at column 1; mend it or fetch the file again"
        ),
        "blank line": SAME,
    },
    "cmedqa2": {
        "wrong column count": refused("{corpus}:4: 2 columns by commas; the header names 3"),
        "invalid pattern": ABSENT,
        "empty file": refused("{corpus}:1: no column ans_id; the header must name ans_id, content"),
        "blank line": refused("{corpus}:2: 0 columns by commas; the header names 3"),
    },
    "dpr": {
        "unknown id in qrels": counted(
            UNKNOWN, "1 rows of training lists name documents or queries that are not kept and were dropped"
        ),
        "broken JSON": refused(
            "{0}/dev.json: item 2: not valid JSON (parse error: premature EOF); mend it or fetch it again"
        ),
        "wrong column count": refused("{corpus}:4: 1 " + DPR_LINE),
        "blank line": refused("{corpus}:2: 1 " + DPR_LINE),
    },
    "entity_questions": {
        "broken JSON": refused(
            "{0}/dataset/test/P36.test.json: item 2: not valid JSON (parse error: premature EOF);"
            " mend it or fetch it again"
        ),
        "wrong column count": refused("{corpus}:4: 1 " + DPR_LINE),
        "blank line": refused("{corpus}:2: 1 " + DPR_LINE),
        "unknown id in qrels": ABSENT,
    },
    "rocketqa": {
        "wrong column count": refused("{corpus}:3: 1 columns by tabs; a line is passage id, text: 2 columns"),
        "blank line": refused("{corpus}:2: 1 columns by tabs; a line is passage id, text: 2 columns"),
    },
    "rocketqa_tsv": OWN_IDS
    | {
        "wrong column count": refused("{corpus}:3: 2 columns by tabs; a line is query, title, text, label: 4 columns"),
        "invalid pattern": ABSENT,
        "empty file": refused(NO_QRELS),
        "blank line": refused("{corpus}:2: 1 columns by tabs; a line is query, title, text, label: 4 columns"),
    },
    "dureader_retrieval": {
        "broken JSON": refused(
            "{0}/dev/dev.json:2: not valid JSON, Expecting value at column 17; one JSON object a line is allowed"
        ),
        "wrong column count": refused(
            "{corpus}:3: 2 columns by tabs; a line is the text, or -, title or -, text, 0: 1 or 4 columns"
        ),
        "invalid pattern": ABSENT,
        "empty file": refused(
            "{0}/passage-collection/passage2id.map.json: names 2 lines, but the 1 parts beside it have 0;"
            " fetch what is missing"
        ),
        "blank line": refused(
            "{0}/passage-collection/passage2id.map.json: names 2 lines, but the 1 parts beside it have 3;"
            " fetch what is missing"
        ),
    },
    "dureader2": OWN_IDS
    | {
        "broken JSON": refused(
            "{corpus}:2: not valid JSON, Expecting value at column 17; one JSON object a line is allowed"
        ),
        "empty passage": SAME,
        "empty file": refused(NO_QRELS),
    },
}

CASES = {(name, fault): EXPECTED[name].get(fault, usual) for name in FORMATS for fault, usual in USUAL.items()}
