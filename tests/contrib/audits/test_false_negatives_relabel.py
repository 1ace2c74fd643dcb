"""From a filled sheet to corrected judgements: what is read back, what is refused, what changes."""

import base64
import json
import re
import shutil
import statistics
import subprocess

import pyarrow.parquet as pq
import pytest

from tandem.contrib.audits.false_negatives import run as pool_stage
from tandem.contrib.audits.relabel import run as relabel_stage
from tandem.data.tables import QRELS_SCHEMA
from tandem.errors import UserError
from tandem.evaluation.scores import run as score
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

CHROMIUM = shutil.which("chromium")
NASTY = '</script><script>alert("x")</script>, <b>bold</b>'
PASSAGES = [
    ("p1", "", "one"),
    ("p2", NASTY, NASTY),
    ("p3", "", "-three"),
    ("p4", "", "four"),
    ("p5", "", "five"),
]
QUERIES = [("q1", f"first {NASTY}", "test"), ("q2", "second", "test"), ("q3", "third", "test")]
QRELS = [
    ("q1", "p1", 1, "test"),
    ("q2", "p4", 1, "test"),
    ("q2", "p1", 0, "test"),
    ("q3", "p4", 1, "test"),
]
RANKED = {"q1": ["p2", "p3", "p1"], "q2": ["p1", "p2", "p4"], "q3": ["p4"]}


@pytest.fixture
def inputs(make_job, make_collection, make_run, tmp_path):
    data = make_collection(tmp_path / "d" / "mini-0123456789", PASSAGES, QUERIES, QRELS)
    run = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", RANKED)
    out = tmp_path / "pool" / "p-0123456789"
    params = {"split": "test", "depth": 50, "top": 5, "threshold": 0.5}
    pool_stage(make_job("false_negatives", out, params, {"dataset": data, "run.0": run}))
    return {"dataset": data, "pool": open_artifact(out)}


def relabel(make_job, out, inputs, sheet=None, text=None, **params):
    if text is not None:
        sheet.write_bytes(text if isinstance(text, bytes) else text.encode())
    execution = {"path": str(sheet)} if sheet else {}
    relabel_stage(make_job("relabel", out, params, inputs, execution))
    artifact = open_artifact(out, "relabel")
    table = pq.read_table(artifact.path("qrels.parquet"))
    assert table.schema.equals(QRELS_SCHEMA)
    return (
        artifact,
        list(zip(*table.to_pydict().values(), strict=True)),
        json.loads(artifact.path("changes.json").read_text()),
    )


def test_shares_are_of_the_queries_that_were_looked_at(make_job, make_run, inputs, tmp_path):
    data, out = inputs["dataset"], tmp_path / "pool" / "two-0123456789"
    run = make_run(tmp_path / "r" / "other.test-0123456789", data, "test", RANKED)
    params = {"split": "test", "depth": 50, "top": 5, "threshold": 0.5, "queries": 2}
    pool_stage(make_job("false_negatives", out, params, {"dataset": data, "run.0": run}))
    looked_at = {"dataset": data, "pool": open_artifact(out)}
    sheet = tmp_path / "filled.csv"
    sheet.write_text(filled(looked_at, {("q1", "p2"): "1"}))
    fingerprint = sha256(sheet)
    _, _, changes = relabel(
        make_job, tmp_path / "a-0123456789", looked_at, sheet, fingerprint=fingerprint
    )
    assert (changes["queries"], changes["changed"], changes["percent_changed"]) == (2, 1, 50.0)


def filled(inputs, verdicts):
    """The sheet with verdicts for (query, document)."""
    lines = inputs["pool"].path("sheet.csv").read_text(encoding="utf-8-sig").splitlines()
    rows = [lines[0]]
    for line in lines[1:]:
        rows.append(line + verdicts.get(tuple(line.split(",")[:2]), ""))
    return "\n".join(rows) + "\n"


def test_annotators_add_positives(make_job, inputs, tmp_path):
    sheet = tmp_path / "filled.csv"
    text = filled(inputs, {("q1", "p2"): "1", ("q1", "p3"): " YES ", ("q2", "p2"): "0"})
    sheet.write_text(text)
    artifact, qrels, changes = relabel(
        make_job, tmp_path / "a-0123456789", inputs, sheet, split="test", fingerprint=sha256(sheet)
    )
    assert qrels == [*QRELS, ("q1", "p2", 1, "test"), ("q1", "p3", 1, "test")]
    assert changes == {
        "split": "test",
        "verdict": "annotators",
        "sheet": "filled.csv",
        "queries": 3,
        "asked_about": 3,
        "new_positives": 2,
        "changed": 1,
        "percent_changed": 33.33,
        "positives_per_query": {"before": 1.0, "after": 1.6667},
        "changes": {"q1": {"before": 1, "after": 3}},
    }
    assert artifact.manifest.facts["verdict"] == "annotators"


def test_verdicts_that_a_model_filled_in_are_no_annotators(make_job, inputs, tmp_path):
    text = "query_id,doc_id,verdict,grade,filled_by\nq1,p2,1,3,some-model\nq1,p3,1,,\n"
    artifact, qrels, changes = relabel(
        make_job, tmp_path / "a-0123456789", inputs, tmp_path / "s.csv", text
    )
    assert [row[:2] for row in qrels[len(QRELS) :]] == [("q1", "p2"), ("q1", "p3")]
    assert (artifact.manifest.facts["verdict"], changes["verdict"], changes["machine_made"]) == (
        "machine",
        "machine",
        1,
    )
    assert artifact.manifest.facts["warnings"] == [
        "a language model gave 1 of the sheet's verdicts, not annotators"
    ]
    checked = text.replace("some-model", "")
    artifact, _, changes = relabel(
        make_job, tmp_path / "b-0123456789", inputs, tmp_path / "s.csv", checked
    )
    assert (changes["verdict"], "machine_made" in changes) == ("annotators", False)


def test_a_remark_beside_the_last_column_is_not_who_filled_it_in(make_job, inputs, tmp_path):
    text = "query_id,doc_id,verdict\nq1,p2,1,looks good\nq1,p3,1\n"
    _, _, changes = relabel(make_job, tmp_path / "a-0123456789", inputs, tmp_path / "s.csv", text)
    assert (changes["verdict"], "machine_made" in changes, changes["new_positives"]) == (
        "annotators",
        False,
        2,
    )


def test_ids_are_no_formulas_and_are_read_back(make_job, make_collection, make_run, tmp_path):
    ids = ["=1+2", "'=1+2", "'p", "p"]
    passages = [("known", "", "one"), *((doc, "", doc) for doc in ids)]
    data = make_collection(
        tmp_path / "d" / "mini-0123456789",
        passages,
        [("@q", "first", "test")],
        [("@q", "known", 1, "test")],
    )
    run = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", {"@q": ids})
    out, params = (
        tmp_path / "pool" / "p-0123456789",
        {"split": "test", "depth": 50, "top": 5, "threshold": 0.5},
    )
    pool_stage(make_job("false_negatives", out, params, {"dataset": data, "run.0": run}))
    inputs = {"dataset": data, "pool": open_artifact(out)}
    head, *rows = inputs["pool"].path("sheet.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [row.split(",")[:2] for row in rows] == [
        ["'@q", doc] for doc in ("'=1+2", "''=1+2", "''p", "p")
    ]
    for name, text in (
        ("a", "\n".join([head, *(f"{row}1" for row in rows)])),
        ("b", f"{head}\n@q,=1+2,,,,1,1,1"),
    ):
        _, qrels, _ = relabel(
            make_job, tmp_path / f"{name}-0123456789", inputs, tmp_path / "s.csv", text
        )
        assert [doc for _, doc, _, _ in qrels[1:]] == (ids if name == "a" else ["=1+2"])


@pytest.mark.parametrize(
    "how", ["as written", "windows", "semicolons", "tabs", "columns moved", "empty rows"]
)
def test_whatever_spreadsheet_saved_it(make_job, inputs, tmp_path, how):
    text = {
        "as written": "\ufeffquery_id,doc_id,verdict\nq1,p2,1\n",
        "windows": '\ufeffquery_id,doc_id,passage,verdict\r\nq1,p2,"two\r\nlines",1\r\n',
        "semicolons": "query_id;doc_id;title;verdict\nq1;p2;a,b,c,d,e;yes\n",
        "tabs": "query_id\tdoc_id\tverdict\nq1\tp2\t1\n",
        "columns moved": "note,verdict,doc_id,query_id\nx,1,p2,q1\ny,,p3,q1\n",
        "empty rows": "query_id,doc_id,verdict\n,,\nq1,p2,1\n\nq1,p2,1\n",
    }[how]
    _, qrels, changes = relabel(
        make_job, tmp_path / "a-0123456789", inputs, tmp_path / "s.csv", text
    )
    assert qrels[len(QRELS) :] == [("q1", "p2", 1, "test")]
    assert changes["asked_about"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query_id,doc_id,verdict\nq1,p2,1\nq9,p2,1\n", r"s\.csv:3: query_id 'q9' is not in"),
        (
            "query_id,doc_id,verdict\nq1,p5,1\n",
            r"s\.csv:2: doc_id 'p5' was not pooled for query q1",
        ),
        ("query_id,doc_id,verdict\nq1,p1,1\n", r"s\.csv:2: p1 is labelled already for query q1"),
        (
            "query_id,doc_id,verdict\nq1,p2,maybe\n",
            r"s\.csv:2: verdict is 'maybe'; allowed are 1, 0, yes, no or",
        ),
        (
            "query_id,doc_id,verdict\nq1,p2,1\nq1,p3,\nq1,p2,no\n",
            r"s\.csv:4: p2 .* not relevant here and relevant in row 2",
        ),
        (
            "query,doc_id,verdict\nq1,p2,1\n",
            r"s\.csv:1: no column query_id \(found: query, doc_id, verdict\)",
        ),
        ("", r"s\.csv:1: no column query_id, doc_id, verdict \(found: nothing\)"),
        ("query_id,doc_id,verdict\nq1,p2\n", r"s\.csv:2: 2 columns; the sheet has 3"),
        ('query_id,doc_id,verdict\nq1,"p2,1\n', r"s\.csv: not valid CSV"),
        ("query_id,doc_id,verdict\nq1,é,1\n".encode("latin-1"), r"s\.csv:2: not UTF-8"),
    ],
)
def test_a_mistake_is_one_line_with_its_row(make_job, inputs, tmp_path, text, message):
    with pytest.raises(UserError, match=message) as caught:
        relabel(make_job, tmp_path / "a-0123456789", inputs, tmp_path / "s.csv", text)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a-0123456789" / "stage.json").exists()


def test_partners_that_do_not_fit(make_job, make_collection, inputs, tmp_path):
    out = tmp_path / "a-0123456789"
    with pytest.raises(
        UserError, match="ranked without a judge and has no verdict; name a filled sheet"
    ):
        relabel(make_job, out, inputs)
    with pytest.raises(UserError, match="no such file"):
        relabel(make_job, out, inputs, tmp_path / "none.csv")
    with pytest.raises(UserError, match="has changed since this stage was planned"):
        relabel(
            make_job,
            out,
            inputs,
            tmp_path / "s.csv",
            "query_id,doc_id,verdict\n",
            fingerprint="0123456789",
        )
    with pytest.raises(UserError, match="is a pool of split test, but split is dev"):
        relabel(make_job, out, inputs, tmp_path / "s.csv", "query_id,doc_id,verdict\n", split="dev")
    other = make_collection(tmp_path / "d" / "other-0123456789", PASSAGES, QUERIES, QRELS)
    with pytest.raises(UserError, match="was made from the dataset mini-0123456789"):
        relabel(
            make_job,
            out,
            inputs | {"dataset": other},
            tmp_path / "s.csv",
            "query_id,doc_id,verdict\n",
        )


def test_the_machines_verdict_is_marked_as_such(
    make_job, make_run, dataset, tokens, cross_model, tmp_path
):
    names = pq.read_table(dataset.path("corpus.parquet"))["doc_id"].to_pylist()
    ranked = {
        f"test-{name[:-2]}": names[i : i + 4]
        for i, name in enumerate(names[:56])
        if name.endswith("-1")
    }
    run = make_run(tmp_path / "r" / "bm25.test-0123456789", dataset, "test", ranked)
    inputs = {"dataset": dataset, "run.0": run, "judge.0": cross_model, "judge_tokens.0": tokens}
    params = {
        "split": "test",
        "depth": 4,
        "top": 2,
        "threshold": 0.5,
        "precision": "fp32",
        "batch_tokens": 512,
    }
    pool_stage(make_job("false_negatives", tmp_path / "pool" / "o-0123456789", params, inputs))
    rows = pq.read_table(tmp_path / "pool" / "o-0123456789" / "pool.parquet").to_pylist()
    middle = statistics.median(row["score"] for row in rows if row["asked"])
    out = tmp_path / "pool" / "p-0123456789"
    pool_stage(make_job("false_negatives", out, params | {"threshold": middle}, inputs))
    both = {"dataset": dataset, "pool": open_artifact(out)}
    artifact, qrels, changes = relabel(make_job, tmp_path / "a-0123456789", both, threshold=middle)
    likely = [
        (r["query_id"], r["doc_id"], 1, "test") for r in rows if r["asked"] and r["score"] > middle
    ]
    assert qrels[20:] == likely != []
    assert artifact.manifest.facts["verdict"] == "machine"
    summary = json.loads((out / "summary.json").read_text())
    assert changes["changed"] == summary["above_threshold"]["queries"]
    assert changes["positives_per_query"]["after"] == summary["positives"]["per_query_with_likely"]
    none, _, _ = relabel(make_job, tmp_path / "b-0123456789", both, threshold=1.0)
    assert none.manifest.facts["new_positives"] == 0
    warned = [
        any("labels stay as they are" in line for line in each.manifest.facts.get("warnings", []))
        for each in (none, artifact)
    ]
    assert warned == [True, False]


def test_the_score_stage_takes_the_new_labels(make_job, inputs, tmp_path):
    run = open_artifact(tmp_path / "r" / "bm25.test-0123456789")
    artifact, _, _ = relabel(
        make_job,
        tmp_path / "l-0123456789",
        inputs,
        tmp_path / "s.csv",
        "query_id,doc_id,verdict\nq1,p2,1\nq2,p2,1\n",
    )
    means = {}
    for name, labels in (("before", {}), ("after", {"labels": artifact})):
        out = tmp_path / f"{name}-0123456789"
        job = make_job(
            "score",
            out,
            {"measures": ["RR@10"], "split": "test"},
            {"dataset": inputs["dataset"], "run": run, **labels},
        )
        score(job)
        means[name] = json.loads((out / "statistics.json").read_text())["mean"]["RR@10"]
    assert means["before"] == pytest.approx((1 / 3 + 1 / 3 + 1) / 3)
    assert means["after"] == pytest.approx((1 + 1 / 2 + 1) / 3)


def test_the_page_holds_texts_as_texts(inputs):
    page = inputs["pool"].path("sheet.html").read_text()
    assert 'alert("x")</script>' not in page
    assert "<b>bold" not in page
    assert page.count("<article") == 3
    assert "default-src 'none'" in page


@pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)
def test_the_page_in_a_browser_saves_what_relabel_reads(make_job, inputs, tmp_path):
    # q1's p2 by keyboard, p3 by mouse, q2's p2 by keyboard and taken back; what would be saved is put on the page.
    script = """<script>
      const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      URL.createObjectURL = (blob) => (blob.arrayBuffer().then((bytes) => {
        const saved = Object.assign(document.createElement("pre"), { id: "saved" });
        saved.textContent = btoa(String.fromCharCode(...new Uint8Array(bytes)));
        document.body.append(saved);
      }), "#");
      press("j"); press("1");
      document.querySelectorAll("article")[1].querySelector('input[value="0"]').click();
      press("n"); press("1"); press("u");
      document.getElementById("save").click();
    </script>"""
    page = tmp_path / "page.html"
    page.write_text(
        inputs["pool"].path("sheet.html").read_text().replace("</body>", f"{script}</body>")
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--virtual-time-budget=4000",
        "--dump-dom",
    ]
    command = [
        CHROMIUM,
        *flags,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    saved = re.search(r'<pre id="saved">(.*?)</pre>', done.stdout)
    assert saved is not None, done.stderr[-2000:]
    assert "2 of 3 answered" in done.stdout
    text = base64.b64decode(saved[1])
    written = inputs["pool"].path("sheet.csv").read_bytes()
    assert (
        text
        == filled(inputs, {("q1", "p2"): "1", ("q1", "p3"): "0"}).encode("utf-8-sig")
        != written
    )
    _, qrels, changes = relabel(
        make_job, tmp_path / "a-0123456789", inputs, tmp_path / "s.csv", text
    )
    assert qrels[len(QRELS) :] == [("q1", "p2", 1, "test")]
    assert changes["asked_about"] == 2
