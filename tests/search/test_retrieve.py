"""Stage `retrieve`: the run of a brute-force search, ties included; partners that do not fit are refused."""

import subprocess
import sys

import numpy as np
import pytest

from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.search.retrieve import run

PARAMS = {"depth": 7, "split": "test"}


@pytest.fixture
def inputs(dataset, passages, queries):
    return {"dataset": dataset, "passages": passages, "queries": queries}


def vectors(artifact):
    files = sorted(name for name in artifact.manifest["files"] if name.endswith(".npy"))
    return np.concatenate([np.load(artifact.path(name)) for name in files]).astype(np.float64)


def brute_force(inputs, depth):
    """TREC lines without tag, by sorting all passages."""
    ids = Collection(inputs["dataset"]).doc_ids().to_pylist()
    lines = []
    for name, row in zip(Collection(inputs["dataset"]).queries("test"), vectors(inputs["queries"]), strict=True):
        scores = (vectors(inputs["passages"]) * row).sum(axis=1).astype(np.float32)
        order = sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))[:depth]
        lines += [f"{name} Q0 {ids[i]} {n} {scores[i]:.9g}" for n, i in enumerate(order, start=1)]
    return lines


@pytest.mark.parametrize("depth", [1, 7, 100])
def test_run_equals_brute_force(tmp_path, make_job, inputs, depth):
    job = make_job("retrieve", tmp_path / "de.test-0123456789", {**PARAMS, "depth": depth}, inputs, {"workers": 2})
    run(job)
    lines = (job.out / "run.trec").read_text().splitlines()
    assert lines == [f"{line} de.test-0123456789" for line in brute_force(inputs, depth)]
    assert len(lines) == 20 * min(depth, 60)


def test_copies_of_a_passage_stand_by_document_id_also_at_the_cut(
    tmp_path, make_job, make_dataset, make_tokens, embed, dual_model
):
    """Five passages eight times each, all over the corpus; a cut at 11 falls into the second one's copies."""
    subjects = ["otter", "heron", "mole", "lynx", "toad"]
    copies = [(f"{(i * 17) % 40:02}", "", f"The {subjects[i % 5]} sleeps.") for i in range(40)]
    dataset = make_dataset(tmp_path / "dataset" / "copies-0123456789", copies)
    tokens = make_tokens(tmp_path / "tokens" / "copies-0123456789", dataset)
    made = {"dataset": dataset, "model": dual_model, "tokens": tokens}
    inputs = {
        "dataset": dataset,
        "passages": embed(tmp_path / "p-0123456789", made, side="passages"),
        "queries": embed(tmp_path / "q-0123456789", made, side="queries", split="test"),
    }
    job = make_job("retrieve", tmp_path / "r-0123456789", {"depth": 11, "split": "test"}, inputs)
    run(job)
    text_of = {doc: text for doc, _, text in copies}
    for _, docs, scores in iter_run(job.out / "run.trec"):
        assert len({text_of[doc] for doc in docs[:8]}) == len({text_of[doc] for doc in docs[8:]}) == 1
        assert docs[:8] == sorted(doc for doc in text_of if text_of[doc] == text_of[docs[0]])
        assert docs[8:] == sorted(doc for doc in text_of if text_of[doc] == text_of[docs[8]])[:3]
        assert len(set(scores.tolist())) == 2


def test_passages_and_queries_of_different_models_are_refused(
    tmp_path, make_job, embed, dual_inputs, inputs, joint_model
):
    other = embed(tmp_path / "q-0123456789", {**dual_inputs, "model": joint_model}, side="queries", split="test")
    message = "passages were embedded with the model de-0000000004, queries with joint-0000000006"
    with pytest.raises(UserError, match=message):
        run(make_job("retrieve", tmp_path / "x-0123456789", PARAMS, {**inputs, "queries": other}))


def test_another_dataset_split_or_side_is_refused(tmp_path, make_job, make_dataset, inputs):
    out = tmp_path / "x-0123456789"
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", [("x", "", "an otter")])
    with pytest.raises(UserError, match="passages .* was made from the dataset tiny-0000000001; expected other-"):
        run(make_job("retrieve", out, PARAMS, {**inputs, "dataset": other}))
    with pytest.raises(UserError, match="holds queries of the split test; expected dev"):
        run(make_job("retrieve", out, {**PARAMS, "split": "dev"}, inputs))
    with pytest.raises(UserError, match="holds embeddings of queries; expected passages"):
        run(make_job("retrieve", out, PARAMS, {**inputs, "passages": inputs["queries"]}))
    assert not out.exists()


def test_the_command_line_brings_no_torch(tmp_path, make_job, command, inputs):
    job = make_job("retrieve", tmp_path / "de.test-0123456789", PARAMS, inputs, {"workers": 1})
    script = (
        "import sys; from tandem.__main__ import main; code = main(); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules; sys.exit(code)"
    )
    words = [sys.executable, "-c", script, "retrieve", *command(job)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "took" in done.stderr
    lines = (job.out / "run.trec").read_text().splitlines()
    assert lines == [f"{line} de.test-0123456789" for line in brute_force(inputs, 7)]
