"""`tandem export`: the page's own lines find what the stage found, where Tandem cannot be imported."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from tiny_project import run_here
from trec import iter_trec

from tandem.cli import run
from tandem.cluster.progress import Progress
from tandem.contrib.demo.export import PAGE, create_folder, write_flat
from tandem.errors import UserError
from tandem.extras.drafts import hold
from tandem.extras.report.page import render_markdown
from tandem.models.saving import DualShape
from tandem.retrieval.embeddings import Embeddings
from tandem.store.artifact import open_artifact

ALONE = "import sys; sys.modules['tandem'] = None\n"
ASK = "\nimport json; print(json.dumps([[encode(q)[0].tolist(), search(q)] for q in json.loads(sys.stdin.read())]))\n"
BOTH = (
    "\nimport json; print(json.dumps([[doc for doc, _ in found], [ids[row] for row in rows[0]]]))\n"
)


def blocks(folder):
    """The Python of the page, block by block."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)


def finds_the_run(built, folder, kind, name):
    """Run the page's first block in its folder and compare its top ten with a stage's run."""
    (path,) = built.folder.glob(f"results/tiny/{kind}/{name}.test-*/run.trec")
    run = {query: (docs[:10], scores[:10]) for query, docs, scores in iter_trec(path)}
    queries = [f"how does the {query.removeprefix('test-')} behave" for query in run]
    script = f"import os; os.chdir({str(folder)!r})\n{ALONE}{blocks(folder)[0]}{ASK}"
    done = built.run(["-c", script], json.dumps(queries))
    assert done.returncode == 0, done.stderr
    # FAISS may print a line of its own, before or after.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("[[["))
    answers, stored = json.loads(line), stored_vectors(built, name.partition("@")[0])
    vectors = np.array([vector for vector, _ in answers], np.float32)
    # Encoded alone a query differs in its last bits, so that now and then a number is rounded to its other neighbour in
    # fp16. Scores of a query without such a number are the run's.
    same = vectors == stored
    assert same.mean() > 0.99
    np.testing.assert_allclose(vectors, stored, rtol=2**-10, atol=1e-6)
    for (_, hits), (docs, scores), equal in zip(answers, run.values(), same.all(1), strict=True):
        assert [doc for doc, _ in hits] == docs
        assert [value for _, value in hits] == pytest.approx(
            scores.tolist(), rel=1e-5 if equal else 1e-4
        )


def stored_vectors(built, model):
    """The test queries' vectors as the run had them, in its order."""
    (folder,) = built.folder.glob(f"results/tiny/embeddings/{model}.test-*")
    queries = Embeddings(open_artifact(folder), "queries")
    return queries.take(0, queries.rows).astype(np.float32)


def exported(built, folder, *words):
    with contextlib.chdir(built.folder):
        assert run(["export", *words, "config.yaml", "--out", str(folder)]) == 0


def test_two_towers_and_a_flat_index(built, tmp_path):
    folder = tmp_path / "out" / "exported"
    exported(built, folder, "de_bm25neg", "--texts")
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "dual",
        "ids.txt",
        "passages.faiss",
        "texts.parquet",
    }
    assert [path.name for path in folder.parent.iterdir()] == ["exported"]
    finds_the_run(built, folder, "retrieve", "de_bm25neg")
    assert len((folder / "ids.txt").read_text().split("\n")) == 60


def test_an_index_of_lists_on_disk(built, tmp_path):
    folder = tmp_path / "exported"
    exported(built, folder, "de_bm25neg", "--index", "lists")
    page = (folder / "README.md").read_text()
    assert '"nprobe", 2' in page.replace("'", '"')
    assert "IVF4,Flat" in page
    finds_the_run(built, folder, "ann", "de_bm25neg@lists")


def test_sentence_transformers_finds_the_same_in_the_same_folder(built, tmp_path):
    folder = tmp_path / "exported"
    exported(built, folder, "rocketqav2")
    plain, theirs = blocks(folder)
    begin, between = (
        f"import os; os.chdir({str(folder)!r})\n{ALONE}",
        "\nfound = search('how does the otter behave')\n",
    )
    done = built.run(["-c", begin + plain + between + theirs + BOTH])
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert len(first) == 10
    # Passages that all but tie may change places: the two add up the same numbers in another order.
    assert all(abs(first.index(doc) - second.index(doc)) <= 1 for doc in first)


def test_the_flat_file_is_the_one_that_faiss_writes(built, tmp_path):
    (folder,) = built.folder.glob("results/tiny/embeddings/de_bm25neg.passages-*")
    passages = Embeddings(open_artifact(folder), "passages")
    assert len(passages) > 2  # blocks
    index = faiss.IndexFlatIP(passages.dimension)
    index.add(passages.take(0, passages.rows).astype(np.float32))
    faiss.write_index(index, str(tmp_path / "theirs"))
    with Progress("", passages.rows, "passages", quiet=True) as progress:
        write_flat(tmp_path / "ours", passages, progress)
    assert progress.done == passages.rows
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_folder_with_something_in_it_is_refused_and_left_alone(built, tmp_path, monkeypatch):
    monkeypatch.chdir(built.folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(
        UserError, match="exists already and is not an empty folder; name another, or remove it"
    ):
        run(["export", "de_bm25neg", "config.yaml", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_nothing_appears_where_writing_failed(tmp_path):
    with pytest.raises(RuntimeError), create_folder(tmp_path / "out") as draft:
        (draft / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_killed_exports_are_removed(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    killed, elsewhere, alive, other = (
        tmp_path / name
        for name in (f".out.{ended.pid}", f".out.{2**31}", f".out.{os.getppid()}", ".out.txt")
    )
    for folder in (killed, elsewhere, alive, other):
        folder.mkdir()
    (killed / "half").write_text("half")
    with hold(elsewhere), create_folder(tmp_path / "out"):  # another machine's process
        pass
    assert {*tmp_path.iterdir()} == {elsewhere, alive, other, tmp_path / "out"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["de_bm25neg"], "parameter --out requires an argument"),
        (
            ["bm25", "--out", "x"],
            "bm25 has no single vector a passage; only such vectors can be exported as an index",
        ),
        (
            ["late", "--out", "x"],
            "late has no single vector a passage; only such vectors can be exported as an index",
        ),
        (["de_bm25ne", "--out", "x"], "de_bm25ne is not a system; did you mean de_bm25neg?"),
        (
            ["de_bm25neg", "--index", "list", "--out", "x"],
            "list is not a system; did you mean lists?",
        ),
    ],
)
def test_a_mistake_is_one_line(built, monkeypatch, words, message):
    monkeypatch.chdir(built.folder)
    with pytest.raises(UserError, match=message):
        run(["export", *words, "config.yaml"])


VALUES = {
    "system": "x", "dual": DualShape(shared=True, pooling="cls", normalize=True, temperature=1.0, dimension=8),
    "pool": "hidden[:, 0]", "prompt": "", "plain": True, "query_tokens": 1, "passage_tokens": 1, "passages": 50,
    "precision": ["bf16"], "dtype": "int8", "indexes": ["a.faiss"], "factory": "Flat", "copies": None, "tuned": {},
    "texts": False, "normalize": "none", "card": None, "titled": False,
    "query": "''", "lineage": {},
}  # fmt: skip


def test_the_page_says_how_vectors_were_kept():
    assert "computed in bf16 and stored in int8" in render_markdown(PAGE, **VALUES)
    rounded = {
        dtype: ".half()" in render_markdown(PAGE, **VALUES | {"dtype": dtype})
        for dtype in ("fp32", "fp16")
    }
    assert rounded == {"fp32": False, "fp16": True}


def test_the_page_says_what_a_passage_is():
    page, titled = (render_markdown(PAGE, **VALUES | {"titled": each}) for each in (False, True))
    assert "a passage is its title, a space and its text." in page
    assert "a passage is two segments, `tokenizer([title], [text])`." in titled
    assert "the queries alone" in titled


def test_the_page_names_the_folder_to_load_and_a_card_that_is_there(built, tmp_path):
    folder = tmp_path / "exported"
    exported(built, folder, "de_bm25neg")
    page = (folder / "README.md").read_text()
    assert "transformers and sentence-transformers load `dual/shared`" in page
    assert "- `dual/shared/README.md`: its card" in page
    assert (folder / "dual/shared/README.md").is_file()
    towers = replace(VALUES["dual"], shared=False)
    two = render_markdown(PAGE, **VALUES | {"dual": towers})
    assert "transformers loads `dual/query` and `dual/passage`" in two
    assert "its card" not in two


def test_equal_scores_stand_by_id():
    page = render_markdown(PAGE, **VALUES)
    names = {"ids": ["c", "a", "b"], "encode": lambda query: torch.tensor([query])}
    names["index"] = faiss.IndexFlatIP(1)
    names["index"].add(np.array([[1], [1], [2]], np.float32))
    exec(re.search(r"^def search.*?\n\n", page, re.S | re.M)[0], names)
    assert names["search"]([1.0], 3) == [("b", 2.0), ("a", 1.0), ("c", 1.0)]


def test_the_page_says_which_unicode_form_queries_need():
    pages = {
        form: render_markdown(PAGE, **VALUES | {"normalize": form}) for form in ("nfc", "none")
    }
    assert {form: "unicodedata.normalize" in page for form, page in pages.items()} == {
        "nfc": True,
        "none": False,
    }


def test_parts_of_an_index_are_searched_as_one(tmp_path, monkeypatch):
    """An index that FAISS cannot merge is a file a part: the page's lines make one of them, rows going on."""
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(3).standard_normal((50, 8)).astype(np.float32)
    for name, rows in (("a.faiss", vectors[:20]), ("b.faiss", vectors[20:])):
        part = faiss.IndexFlatIP(8)
        part.add(rows)
        faiss.write_index(part, name)
    page = render_markdown(
        PAGE, **VALUES | {"indexes": ["a.faiss", "b.faiss"], "factory": "HNSW32,Flat"}
    )
    names = {"faiss": faiss}
    exec(re.search(r"^parts = .*add_shard\(part\)$", page, re.S | re.M)[0], names)
    _, rows = names["index"].search(vectors[[3, 33]], 5)
    assert rows.tolist() == np.argsort(-vectors[[3, 33]] @ vectors.T, axis=1)[:, :5].tolist()


def test_copies_are_found_beside_the_vector_that_stands_for_them(tmp_path, monkeypatch):
    """Rows 1 and 4 equal row 0, row 3 equals row 2: the graph has two of five, and their ids are in order."""
    monkeypatch.chdir(tmp_path)
    vectors = np.eye(8, dtype=np.float32)[:2]
    graph = faiss.IndexHNSWFlat(8, 4, faiss.METRIC_INNER_PRODUCT)
    graph.add(vectors)
    np.save("copies.npy", np.array([[1, 0], [3, 2], [4, 0]], np.uint32))
    page = render_markdown(
        PAGE, **VALUES | {"indexes": ["a.faiss"], "factory": "HNSW4,Flat", "copies": "copies.npy"}
    )
    names = {
        "np": np,
        "ids": ["d", "a", "c", "b", "e"],
        "index": graph,
        "encode": lambda query: torch.tensor([query]),
    }
    exec(re.search(r"^copies = .*?append\(row\)$", page, re.S | re.M)[0], names)
    exec(re.search(r"^def search.*?\n\n", page, re.S | re.M)[0], names)
    assert names["search"]([1.0, 0.5, 0, 0, 0, 0, 0, 0], 4) == [
        ("a", 1.0),
        ("d", 1.0),
        ("e", 1.0),
        ("b", 0.5),
    ]


def test_a_run_of_any_split_in_trecs_format(built, tmp_path):
    out, trained = tmp_path / "out" / "bm25.trec", tmp_path / "train.trec"
    exported(built, out, "bm25", "--run")
    (path,) = built.folder.glob("results/tiny/bm25/bm25.test-*/run.trec")
    assert out.read_bytes() == path.read_bytes()
    exported(built, trained, "bm25", "--run", "--split", "train")
    (folder,) = built.folder.glob("results/tiny/bm25/bm25.train-*")
    assert not (folder / "run.trec").exists()
    lines = [line.split() for line in trained.read_text().splitlines()]
    assert (len(lines), lines[0][5]) == (open_artifact(folder).manifest.facts["lines"], folder.name)


def test_the_draft_that_a_killed_export_of_a_run_left_is_removed(built, tmp_path):
    left = tmp_path / f".bm25.trec.{2**31}"
    left.write_text("half")
    exported(built, tmp_path / "bm25.trec", "bm25", "--run")
    assert [path.name for path in tmp_path.iterdir()] == ["bm25.trec"]


@pytest.mark.parametrize("system", ["rocketqav2.retriever", "bm25+ce_bm25neg"])
def test_a_run_that_is_not_there_is_built_by_the_command_that_is_named(built, tmp_path, system):
    with contextlib.chdir(built.folder):
        with pytest.raises(UserError) as error:
            words = ["--run", "--split", "train", "--out", str(tmp_path / "x")]
            run(["export", system, "config.yaml", *words])
        command = shlex.split(str(error.value).partition("build it: ")[2])
        status, output = run_here([sys.executable, "-m", *command, "-n"])
    assert status == 0, output
    (key,) = re.findall(r"(\S+\.train-\w{10})/stage.json", " ".join(command))
    assert f"key={Path(key).name}" in output


@pytest.mark.parametrize("kind", [("--run",), ("--mteb",), ()])
@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("ce_bm25neg", r"ce_bm25neg is a cross-encoder, .* say whose: bm25\+ce_bm25neg"),
        ("bm25+", r"bm25\+ is not a system: a name is missing beside \+ or @"),
        ("bm24", r"bm24 is not a system; did you mean bm25\?"),
    ],
)
def test_a_mistake_in_a_system_is_the_same_line_whatever_is_exported(
    built, tmp_path, kind, system, message
):
    with contextlib.chdir(built.folder), pytest.raises(UserError, match=f"^{message}"):
        run(["export", system, *kind, "config.yaml", "--out", str(tmp_path / "x")])


def test_given_lists_that_a_dataset_lacks_are_no_run(built, tmp_path):
    words = ["--run", "--split", "train", "--out", str(tmp_path / "x")]
    message = "^given: dataset tiny has no training lists of its own; name another run$"
    with contextlib.chdir(built.folder), pytest.raises(UserError, match=message):
        run(["export", "given", *words, "config.yaml"])


def test_what_a_run_is_not_exported_with(built, tmp_path):
    for words, message in {
        ("--run", "--texts"): "a run is written alone",
        ("--split", "train"): "only a run is of a split",
        ("--run", "--split", "eval"): "eval",
    }.items():
        with contextlib.chdir(built.folder), pytest.raises(UserError, match=message):
            run(["export", "bm25", *words, "config.yaml", "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()
