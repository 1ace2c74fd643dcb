"""Unicode forms: texts that look alike are alike, or a warning says how many are not."""

import json
import unicodedata

import pytest
from tiny_project import ROOT, run_tandem

from tandem.data.collection import Collection
from tandem.data.forms import Composer
from tandem.plan.planner import Planners
from tandem.store.artifact import open_artifact

COMPOSED, DECOMPOSED = "Br\u00fccke", "Bru\u0308cke"
NOTE = "1 passages, 1 queries, 1 answers not in Unicode's form NFC"


@pytest.fixture
def bridges(tmp_path):
    """Four passages in BEIR's layout, one of them decomposed; of two queries another one is."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    passages = {"d1": f"{COMPOSED} Holz", "d2": "Holz Stein", "d3": DECOMPOSED, "d4": "Stein"}
    rows = [{"_id": doc, "title": "", "text": text} for doc, text in passages.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = {"q1": f"{DECOMPOSED} Holz", "q2": COMPOSED}
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": query, "text": text}) + "\n" for query, text in queries.items())
    )
    (folder / "answers.jsonl").write_text(
        json.dumps({"_id": "q1", "answers": ["x", DECOMPOSED]}) + "\n"
    )
    (folder / "qrels/test.tsv").write_text("q1\td1\t1\nq2\td3\t1\n")
    return folder


@pytest.mark.parametrize(("normalize", "ranks"), [("nfc", (1.0, 1.0)), ("none", (0.5, 0.0))])
def test_a_decomposed_query_finds_a_composed_passage(bridges, tmp_path, normalize, ranks):
    # By hand, in one form: d1 alone has both words of q1, and of d1 and d3, which have that of q2, d3 is shorter. As
    # they are, the first word of q1 stands in d3 alone, and d1 comes second by the other; q2's stands in d1 alone.
    at = {kind: tmp_path / kind / "x-0" for kind in ("dataset", "bm25s", "bm25", "score")}
    words = ["--params.source", "beir", "--params.normalize", normalize, "--run.path", bridges]
    output = run_tandem("dataset", *words, "--out", at["dataset"] / "stage.json")
    done = (
        "were put into it"
        if normalize == "nfc"
        else "what looks equal may not match; set normalize: nfc"
    )
    assert NOTE in output
    assert done in output
    facts = open_artifact(at["dataset"]).manifest.facts
    assert facts["not_nfc"] == {"passages": 1, "queries": 1, "answers": 1}
    assert len(facts["warnings"]) == (normalize == "none")
    analyzer = ["--params.analyzer", "whitespace"]
    run_tandem(
        "bm25s", *analyzer, "--in.dataset", at["dataset"], "--out", at["bm25s"] / "stage.json"
    )
    inputs = ["--in.dataset", at["dataset"]]
    how = ["--params.k1", 0.9, "--params.b", 0.4, "--params.depth", 10, "--params.split", "test"]
    run_tandem("bm25", *how, *inputs, "--in.bm25s", at["bm25s"], "--out", at["bm25"] / "stage.json")
    params = ["--params.measures", '["RR@10"]', "--params.split", "test"]
    run_tandem(
        "score", *params, *inputs, "--in.run", at["bm25"], "--out", at["score"] / "stage.json"
    )
    mean = json.loads((at["score"] / "statistics.json").read_text())["mean"]["RR@10"]
    assert mean == pytest.approx(sum(ranks) / 2)


def test_texts_queries_and_answers_get_one_form(bridges, make):
    collection = Collection(make("a", {"source": "beir", "normalize": "nfc"}, path=str(bridges)))
    texts = [text for _, text in collection.texts(["d1", "d3"]).values()]
    texts += [*collection.queries("test").values(), *collection.answers("test")["q1"]]
    assert [unicodedata.is_normalized("NFC", text) for text in texts] == [True] * 6
    same = Collection(make("b", {"source": "beir"}, path=str(bridges)))
    assert same.texts(["d3"]) == {"d3": ("", DECOMPOSED)}


def test_what_is_composed_is_not_copied():
    titles, texts = ("",), (COMPOSED,)
    composer = Composer("nfc")
    assert [id(part) for part in composer.passages(titles, texts)] == [id(titles), id(texts)]
    assert composer.note() == ""


def test_files_of_ones_own_are_normalised_and_published_collections_are_not(bridges, configured):
    config = configured()
    config["datasets"] |= {
        "mine": {"source": "beir", "path": str(bridges)},
        "as_is": {"source": "beir", "path": str(bridges), "normalize": "none"},
        "cut": {"source": "windows", "of": "mine"},
        "both": {"source": "union", "of": ["as_is", "mine"]},
        "raw": {"source": "windows", "of": "as_is"},
        "asked": {"source": "pair", "corpus_of": "pydocs", "path": str(bridges)},
    }
    plan = Planners(config, ROOT).base
    forms = {
        name: plan.dataset(name).values["normalize"]
        for name in (*config["datasets"], "nanobeir-arguana")
    }
    assert forms == {
        "pydocs": "none", "mine": "nfc", "as_is": "none", "cut": "nfc", "both": "nfc", "raw": "none", "asked": "none",
        "nanobeir-arguana": "none",
    }  # fmt: skip
    assert plan.dataset("mine").key != plan.dataset("as_is").key
