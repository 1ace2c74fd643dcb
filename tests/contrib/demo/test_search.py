"""`tandem search` on built artifacts: what it prints is what the stages' runs hold, and its mistakes are one line."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import yaml
from trec import iter_trec

from tandem import ROOT
from tandem.cli import run
from tandem.cluster.threads import count_usable_cores
from tandem.contrib.demo import ranking
from tandem.contrib.demo.search import read_input
from tandem.contrib.demo.workers import Worker, serve
from tandem.errors import UserError
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact

QUERIES = [f"how does the {name} behave" for name in ("otter", "heron", "eel", "newt")]


def run_of(built, kind, name):
    """Query id → (documents, scores) of a finished run."""
    (path,) = built.folder.glob(f"results/tiny/{kind}/{name}.test-*/run.trec")
    return {query: (docs, scores) for query, docs, scores in iter_trec(path)}


class ThreadWorker(Worker):
    """A worker in a thread: importing torch in another process takes longer than any answer."""

    def __init__(self, role, parts, plugins):
        assert not plugins
        (read, asked), (answered, answer) = os.pipe(), os.pipe()
        self._thread = Thread(target=serve, args=(role, os.fdopen(read), os.fdopen(answer, "w")))
        self._questions, self._answers = os.fdopen(asked, "w"), os.fdopen(answered)
        self._thread.start()
        self._send({"parts": parts})

    def __exit__(self, *_):
        self._questions.close()
        self._thread.join()
        self._answers.close()


class JavaWorker(Worker):
    """A worker with its process, where Java stays for good: later searches of the same parts go on with it."""

    def __init__(self, parts):
        super().__init__("bm25", parts)
        self.loaded, self.is_new = super().receive(), True

    def __exit__(self, *_):
        self.is_new = True

    def receive(self):
        """What it says when it has loaded, and then its answers."""
        if self.is_new:
            self.is_new = False
            return self.loaded
        return super().receive()


@cache
def java_worker(parts):
    return JavaWorker(json.loads(parts))


def start_worker(role, parts, plugins):
    """A worker without the time that another process takes to begin."""
    return java_worker(json.dumps(parts)) if role == "bm25" else ThreadWorker(role, parts, plugins)


def search(built, *words):
    """The answers of `tandem search` in this process, as JSON; without a query to `QUERIES` on standard input."""
    questions = built.folder / "questions.txt"
    questions.write_text("\n".join([*QUERIES, "", ""]))
    with (
        pytest.MonkeyPatch.context() as patched, questions.open() as lines, chdir(built.folder),
        redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors,
    ):  # fmt: skip
        patched.setattr(sys, "stdin", lines)
        patched.setattr(ranking, "Worker", start_worker)
        assert run(["search", *words]) == 0
    assert "loaded in" in errors.getvalue()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def ask(built, system, *flags):
    """The answers to `QUERIES`."""
    return search(built, system, "config.yaml", "--json", *flags)


def check_list(answers, run):
    """Documents and scores of answers are those of a run's top."""
    for answer in answers:
        docs, scores = run[answer["known"]["query"]]
        count = len(answer["passages"])
        assert [passage["doc_id"] for passage in answer["passages"]] == docs[:count]
        np.testing.assert_allclose(
            [passage["score"] for passage in answer["passages"]],
            scores[:count],
            rtol=1e-6,
            atol=1e-6,
        )


def test_special_tokens_that_texts_spell_are_text(built):
    folders = list(built.folder.glob("results/tiny/tokens/*"))
    assert folders
    for tokens in map(open_artifact, folders):
        ids, files = Tokens.open(tokens), built.folder / tokens.upstream["encoder"] / "hf"
        special = load_tokenizer(files).convert_tokens_to_ids(["[CLS]", "[SEP]", "[MASK]", "[PAD]"])
        assert not np.isin(ids.passages.ids, special).any()
    # A query is the same text whether it is typed or stands in a file of queries: see tests/models/test_plain_text.py.
    (answer,) = search(built, "bm25+ce_bm25neg", "the [SEP] otter", "config.yaml", "--json")
    assert answer["passages"]


def check_column(answers, label, run, rel=1e-6):
    """A column has the scores that a run gives the same documents."""
    seen = 0
    for answer in answers:
        scores = dict(zip(*run[answer["known"]["query"]], strict=True))
        for passage in answer["passages"]:
            score = passage["scores"][label]
            if passage["doc_id"] in scores:
                assert score == pytest.approx(float(scores[passage["doc_id"]]), rel=rel, abs=1e-6)
                seen += 1
    assert seen >= len(answers)


def test_a_query_gets_the_unicode_form_of_the_passages(built):
    """The collection is a folder of one's own, whose texts are in NFC."""
    (answer,) = search(built, "bm25", "Bru\u0308cke otter", "config.yaml", "--json")
    assert answer["query"] == "Br\u00fccke otter"
    assert answer["passages"][0]["doc_id"].startswith("otter-")


def test_weights_of_terms_are_searched_by_bm25(built):
    answers = ask(built, "deepct@bm25", "--k", "4", "--alone")
    assert any(answer["passages"] for answer in answers)
    check_list(answers, run_of(built, "retrieve_sparse", "deepct@bm25"))
    check_column(answers, "DE deepct@bm25", run_of(built, "retrieve_sparse", "deepct@bm25"))


def test_a_re_ranked_fusion_gives_its_run_and_its_parts_scores(built):
    """BM25, a dual encoder, their weighted fusion and an ensemble of two cross-encoders in one, by processes."""
    words = ["-m", "tandem", "search", "both+pair", "config.yaml", "--json", "--k", "8"]
    done = built.run(words, "\n".join(QUERIES))
    assert done.returncode == 0, done.stderr
    assert "a fusion is" not in done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["query"] for answer in answers] == QUERIES
    check_list(answers, run_of(built, "rerank", "both+pair"))
    bm25, dual = run_of(built, "bm25", "bm25"), run_of(built, "retrieve", "de_bm25neg")
    check_column(answers, "BM25", bm25)
    check_column(answers, "DE de_bm25neg", dual)
    for answer in answers:
        top = [passage["scores"]["CE pair"] for passage in answer["passages"]]
        assert top[:5] == sorted(top[:5], reverse=True)
        assert top[5:] == [None] * 3  # the run re-ranks five
        listed = bm25[answer["known"]["query"]][0]
        assert all(
            (passage["scores"]["BM25"] is None) == (passage["doc_id"] not in listed)
            for passage in answer["passages"]
        )
        name = answer["known"]["query"].removeprefix("test-")
        assert answer["known"]["relevant"] == [f"{name}-2"]
        assert [passage["doc_id"] for passage in answer["passages"] if passage["relevant"]] in (
            [],
            [f"{name}-2"],
        )
        spent = answer["milliseconds"]
        assert spent.keys() == {"BM25", "encode", "search", "re-rank", "total"}
        assert spent["total"] >= max(spent["BM25"] + spent["search"], spent["re-rank"])


@pytest.mark.parametrize("system", ["two_lists", "both+pair"])
def test_a_fusion_that_is_less_deep_than_k_says_so(built, capfd, monkeypatch, system):
    monkeypatch.setattr(ranking, "Worker", start_worker)
    with chdir(built.folder):
        assert run(["search", system, QUERIES[0], "config.yaml", "--json", "--k", "500"]) == 0
    printed = capfd.readouterr()
    assert f"{system}: a fusion is 20 deep; 20 of 500 shown\n" in printed.err
    assert len(json.loads(printed.out)["passages"]) == 20


def test_a_re_ranker_of_two_lists_keeps_the_scores_of_both(built):
    runs = [run_of(built, "rerank", f"{first}+ce_bm25neg") for first in ("bm25", "plain")]
    for answer in ask(built, "two_lists", "--k", "10"):
        scored = {doc for run in runs for doc in run[answer["known"]["query"]][0][:5]}
        shown = {
            passage["doc_id"]: passage["scores"]["CE ce_bm25neg"] for passage in answer["passages"]
        }
        assert {doc for doc, score in shown.items() if score is not None} == scored & shown.keys()


def test_late_interaction_re_ranks_as_its_run_does(built):
    answers = ask(built, "bm25+late", "--alone", "--k", "5")
    run = run_of(built, "rerank", "bm25+late")
    for answer in answers:
        docs, scores = run[answer["known"]["query"]]
        assert [passage["doc_id"] for passage in answer["passages"]] == docs[:5]
        # vectors are rounded to fp16, where the last bits of another batch's may show
        assert [passage["scores"]["CE late"] for passage in answer["passages"]] == pytest.approx(
            scores[:5], rel=1e-3
        )


@pytest.mark.parametrize("system", ["late", "late@codes"])
def test_late_interaction_searches_all_passages_and_compressed_ones(built, system):
    answers = ask(built, system, "--alone", "--k", "5")
    run = run_of(built, "maxsim", system)
    for answer in answers:
        scores = dict(zip(*run[answer["known"]["query"]], strict=True))
        assert len(answer["passages"]) == 5
        for passage in answer["passages"]:  # vectors of a query are rounded to fp16, as above
            assert (
                passage["score"]
                == passage["scores"][f"DE {system}"]
                == pytest.approx(scores[passage["doc_id"]], rel=1e-3)
            )


def test_late_interaction_scores_what_another_system_retrieves(built):
    """The last of the tables' systems that shares a part, BM25, fills the column of dual encoders."""
    check_column(
        ask(built, "bm25+ce_bm25neg", "--k", "20"),
        "DE late",
        run_of(built, "maxsim", "late"),
        rel=1e-3,
    )


def test_an_encoder_without_training_is_searched_by_its_name(built):
    folder = Path(
        yaml.safe_load((built.folder / "config.yaml").read_text())["encoders"]["plain"]["path"]
    )
    check_list(ask(built, "plain", "--alone", "--k", "3"), run_of(built, "retrieve", folder.name))


def test_a_joint_model_is_ranked_by_its_retriever_beside_its_re_ranker(built):
    answers = ask(built, "rocketqav2")
    retrieved = run_of(built, "retrieve", "rocketqav2")
    check_list(answers, retrieved)
    check_column(answers, "DE rocketqav2", retrieved)
    joint = run_of(built, "rerank", "rocketqav2.retriever+rocketqav2.reranker")
    top = {query: (docs[:5], scores[:5]) for query, (docs, scores) in joint.items()}
    check_column(answers, "CE rocketqav2.reranker", top)
    assert all(
        passage["scores"]["CE rocketqav2.reranker"] is not None
        for answer in answers
        for passage in answer["passages"]
    )


def test_odd_queries_are_answered(built):
    """Some find nothing, end as a file does, begin as a flag does, or are no UTF-8."""
    flags = ["config.yaml", "--json", "--alone", "--k", "3"]
    for system, *query in (
        ("bm25", "an otter of animals.yaml"),
        ("bm25", "--", "--otter"),
        ("both", "水獭 ∅"),
    ):
        (answer,) = search(built, system, *flags, *query)
        assert answer["query"] == query[-1]
        assert len(answer["passages"]) == 3
    words = [sys.executable, "-m", "tandem", "search", "bm25", "config.yaml", "--json", "--alone"]
    queries = b"\xef\xbb\xbfotter \xff\nzzzz\nheron\n"  # behind a byte order mark
    done = subprocess.run(words, input=queries, capture_output=True, cwd=built.folder)
    assert done.returncode == 0, done.stderr
    first, nothing, second = map(json.loads, done.stdout.splitlines())
    assert first["query"] == "otter \ufffd"
    assert [first["passages"][0]["doc_id"][:5], second["passages"][0]["doc_id"][:5]] == [
        "otter",
        "heron",
    ]
    assert nothing["passages"] == []


def test_bm25_alone_loads_no_model(built):
    answers = ask(built, "bm25")
    assert all(
        passage["scores"].keys() == {"BM25"} for answer in answers for passage in answer["passages"]
    )
    assert all(answer["milliseconds"].keys() == {"BM25", "total"} for answer in answers)


def test_an_index_gives_its_run(built):
    answers = ask(built, "de_bm25neg@lists", "--alone")
    run = run_of(built, "ann", "de_bm25neg@lists")
    check_list(answers, run)
    assert all(
        passage["scores"].keys() == {"DE de_bm25neg@lists"}
        for answer in answers
        for passage in answer["passages"]
    )


def test_a_person_gets_a_table_without_colours_in_a_pipe(built):
    done = built.run(
        ["-m", "tandem", "search", "bm25", QUERIES[0], "config.yaml", "--k", "3", "--alone"]
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip().splitlines()
    assert lines[0].split() == ["rank", "document", "BM25"]
    assert [line.split()[0].rstrip("✓") for line in lines if line[3:4].isdigit()] == ["1", "2", "3"]
    assert "query test-otter of the split test: 1 relevant (✓), at rank " in done.stdout
    assert re.fullmatch(r"load [\d,]+ ms · BM25 \d+ ms · total \d+ ms", lines[-1])
    assert "\x1b" not in done.stdout
    docs, scores = run_of(built, "bm25", "bm25")["test-otter"]
    assert f"1{'✓' if docs[0] == 'otter-2' else ' '} {docs[0]}" in done.stdout
    assert f"{scores[0]:.4f}" in done.stdout


def test_on_a_terminal_terms_are_bold_and_ctrl_c_is_quiet(built):
    """A prompt on a pseudo-terminal: a query, then Ctrl-C as a terminal sends it; no process is left."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "tandem", "search", "bm25", "config.yaml", "--alone", "--k", "1"]
    environment = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm"}
    running = subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=built.folder, env=environment,
        start_new_session=True,
        # a shell's background job ignores it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(theirs)
    shown, deadline = "", time.monotonic() + 300
    os.write(ours, b"otter\n")
    while "total" not in shown and time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 65536).decode()
    assert "\x1b[1motter\x1b[0m" in shown
    assert "query> " in shown
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(running.pid)], capture_output=True, text=True
    )
    workers = [int(word) for word in children.stdout.split()]
    assert workers
    os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    os.close(ours)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]


def test_a_worker_whose_search_was_stopped_ends_quietly():
    """As where a signal ends `search` while the worker loads: nobody is left to read its answer."""
    read, write = os.pipe()
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "tandem", "search-worker", "bm25"],
        stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(write)
    os.close(read)
    _, errors = worker.communicate(json.dumps({"parts": {}}) + "\n", timeout=120)
    assert (worker.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bm24", "x"], "bm24 is not a system; did you mean bm25?"),
        (["bm25+rocketqa", "x"], "rocketqa is not a system; did you mean rocketqav2?"),
        (
            ["ce_bm25neg", "x"],
            "ce_bm25neg is a cross-encoder, which re-ranks a list; say whose: bm25\\+ce_bm25neg",
        ),
        (["bm25", "x", "--k", "0"], 'Invalid value "0" for --k. Must be >= 1'),
        (
            ["bm25", "x", "--depth", "3"],
            "Unknown option: --depth.* A query that begins with - stands after a --",
        ),
        (["bm25", "-otter"], "A query that begins with - stands after a --"),
        (["bm25", "how", "are", "you"], "4 words are neither flag nor YAML file"),
        ([], "0 words are neither flag nor YAML file"),
        (["bm25", " "], "the query is blank"),
        (["bm25", "x", "--dataset", "tyni"], "dataset: tyni is unknown; allowed: .*, tiny, "),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_loaded(built, monkeypatch, words, message):
    monkeypatch.chdir(built.folder)
    with pytest.raises(UserError, match=message) as error:
        run(["search", *words, "config.yaml"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "words",
    [["--configfile", "config.yaml"], ["config.yaml", "--config", "bm25={k1: 1.4, b: 0.7}"]],
    ids=["files", "values"],
)
def test_the_configuration_is_named_as_for_a_run(built, monkeypatch, capsys, words):
    monkeypatch.chdir(built.folder)
    assert run(["search", "bm25", "otter", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["passages"]


def test_what_is_not_built_is_named_with_the_command_that_builds_it(built, monkeypatch):
    monkeypatch.chdir(built.folder)
    with pytest.raises(UserError) as error:
        run(["search", "bm25.krovetz", "x", "config.yaml"])
    line = str(error.value)
    key = line.split("before lucene ")[1].split(" is built")[0]
    target = f"results/tiny/lucene/{key}/stage.json"
    # no table has this run, so the configuration must be told that it is wanted
    expected = f"--cores {count_usable_cores()} {target} --configfile config.yaml --config 'systems=[bm25.krovetz]'"
    assert line.endswith(f"build it: snakemake -s {ROOT}/Snakefile {expected}")
    assert key.startswith("krovetz-")


def test_a_missing_model_is_not_named_where_what_is_made_from_it_is_missing_too(
    built, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text((built.folder / "config.yaml").read_text())
    with pytest.raises(UserError) as error:
        run(["search", "de_bm25neg", "x", "config.yaml"])
    line = str(error.value)
    assert line.startswith("de_bm25neg cannot be used before embeddings de_bm25neg.passages-")
    assert "model" not in line.split("build it")[0]
    assert "systems=" not in line  # a table has it


def test_a_closed_standard_input_holds_no_queries(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it where nobody opened one
    assert list(read_input()) == []


def test_a_damaged_file_is_named(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text((built.folder / "config.yaml").read_text())
    subprocess.run(
        ["cp", "-r", str(built.folder / "results"), str(tmp_path / "results")], check=True
    )
    (corpus,) = tmp_path.glob("results/tiny/dataset/*/corpus.parquet")
    corpus.write_bytes(b"short")
    with pytest.raises(
        UserError,
        match=r"corpus.parquet: missing or changed since it was written; delete .*stage.json",
    ):
        run(["search", "bm25", "x", "config.yaml"])


LENGTHS = """
from tandem.contrib.demo.workers import WORKER_ROLES

class Lengths:
    def __init__(self, part):
        self.unit = part.params["unit"]
    def answer(self, question):
        return len(question["query"]) // self.unit

WORKER_ROLES["lengths"] = Lengths
"""


def test_a_worker_serves_what_a_plugin_registers(tmp_path):
    plugin = tmp_path / "lengths.py"
    plugin.write_text(LENGTHS)
    parts = {"halves": {"column": "BM25", "params": {"unit": 2}, "inputs": {}}}
    with Worker("lengths", parts, [str(plugin)]) as worker:
        assert worker.receive() is None
        assert worker.ask({"part": "halves", "query": "otters"}) == 3
