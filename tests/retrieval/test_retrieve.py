"""Stage `retrieve`: the run of a brute-force search, ties included; partners that do not fit are refused."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from trec import iter_trec

from tandem.cluster import work
from tandem.config import retrieval as retrieval_options
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.retrieval import faiss_search
from tandem.retrieval import retrieve as module
from tandem.retrieval.exact import SearchEngine
from tandem.retrieval.retrieve import Retrieval, run
from tandem.store.artifact import open_artifact
from tandem.store.job import read_job, run_shard

PARAMS = {"depth": 7, "split": "test"}


@pytest.fixture
def inputs(dataset, passages, queries):
    return {"dataset": dataset, "passages": passages, "queries": queries}


def vectors(artifact):
    files = sorted(name for name in artifact.manifest.files if name.endswith(".npy"))
    return np.concatenate([np.load(artifact.path(name)) for name in files]).astype(np.float64)


def brute_force(inputs, depth):
    """TREC lines without tag, by sorting all passages."""
    ids = Collection(inputs["dataset"]).doc_ids().to_pylist()
    lines = []
    for name, row in zip(
        Collection(inputs["dataset"]).queries("test"), vectors(inputs["queries"]), strict=True
    ):
        scores = (vectors(inputs["passages"]) * row).sum(axis=1).astype(np.float32)
        order = sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))[:depth]
        lines += [f"{name} Q0 {ids[i]} {n} {scores[i]:.9g}" for n, i in enumerate(order, start=1)]
    return lines


@pytest.mark.parametrize("depth", [1, 7, 100])
def test_run_equals_brute_force(tmp_path, make_job, inputs, depth):
    job = make_job(
        "retrieve",
        tmp_path / "de.test-0123456789",
        {**PARAMS, "depth": depth},
        inputs,
        {"workers": 2},
    )
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
    sources = {"dataset": dataset, "model": dual_model, "tokens": tokens}
    inputs = {
        "dataset": dataset,
        "passages": embed(tmp_path / "p-0123456789", sources, side="passages"),
        "queries": embed(tmp_path / "q-0123456789", sources, side="queries", split="test"),
    }
    job = make_job("retrieve", tmp_path / "r-0123456789", {"depth": 11, "split": "test"}, inputs)
    run(job)
    text_of = {doc: text for doc, _, text in copies}
    for _, docs, scores in iter_trec(job.out / "run.trec"):
        assert (
            len({text_of[doc] for doc in docs[:8]}) == len({text_of[doc] for doc in docs[8:]}) == 1
        )
        assert docs[:8] == sorted(doc for doc in text_of if text_of[doc] == text_of[docs[0]])
        assert docs[8:] == sorted(doc for doc in text_of if text_of[doc] == text_of[docs[8]])[:3]
        assert (np.diff(scores) < 0).all()
        assert len(set(np.round(scores, 3).tolist())) == 2


def test_passages_and_queries_of_different_models_are_refused(
    tmp_path, make_job, embed, dual_inputs, inputs, joint_model
):
    other = embed(
        tmp_path / "q-0123456789",
        {**dual_inputs, "model": joint_model},
        side="queries",
        split="test",
    )
    message = "passages were embedded with the model de-0000000004, queries with joint-0000000006"
    with pytest.raises(UserError, match=message):
        run(make_job("retrieve", tmp_path / "x-0123456789", PARAMS, {**inputs, "queries": other}))


def test_passages_encoded_for_another_dataset_serve_one_that_has_the_same(
    tmp_path, make_job, make_dataset, make_tokens, embed, dataset, dual_inputs, inputs, passages
):
    rows = pq.read_table(
        dataset.path("corpus.parquet"), columns=["doc_id", "title", "text"]
    ).to_pylist()
    same = make_dataset(
        tmp_path / "dataset" / "same-0123456789", [tuple(row.values()) for row in rows]
    )
    tokens = make_tokens(tmp_path / "tokens" / "same-0123456789", same)
    own = {**dual_inputs, "dataset": same, "tokens": tokens}
    queries = embed(tmp_path / "q-0123456789", own, side="queries", split="test")
    read = {"dataset": same, "passages": passages, "queries": queries}
    job = make_job("retrieve", tmp_path / "x-0123456789", PARAMS, read)
    run(job)
    lines = (job.out / "run.trec").read_text().splitlines()
    assert lines == [f"{line} x-0123456789" for line in brute_force(inputs, 7)]


def test_another_dataset_split_or_side_is_refused(tmp_path, make_job, make_dataset, inputs):
    out = tmp_path / "x-0123456789"
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", [("x", "", "an otter")])
    with pytest.raises(
        UserError, match=r"passages .* was made from the dataset tiny-0000000001, .*other-"
    ):
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


@pytest.fixture
def alone(tmp_path, make_job, inputs):
    """The run of one process."""
    job = make_job("retrieve", tmp_path / "alone" / "de.test-0123456789", PARAMS, inputs)
    run(job)
    return (job.out / "run.trec").read_bytes()


@pytest.fixture
def shard(tmp_path, make_job, command, inputs):
    """`shard(number, count)`: run a shard's command; `shard.out` is the artifact's folder."""
    out = tmp_path / "shared" / "de.test-0123456789"

    def start(number, count, **execution):
        job = make_job(
            "retrieve", out, PARAMS, inputs, {"shard": number, "shards": count, **execution}
        )
        run_shard("retrieve-shard", command(job, f"shards/{number}-of-{count}.json"))
        return json.loads((out / f"shards/{number}-of-{count}.json").read_text())["blocks"]

    start.out = out
    return start


@pytest.mark.parametrize(
    ("count", "engine"), [(1, "faiss"), (3, "faiss"), (3, "torch"), (7, "auto")]
)
def test_shards_change_no_byte(make_job, inputs, shard, alone, count, engine, monkeypatch):
    """Each searches a range of the four blocks; the stage then searches none and keeps nothing of theirs."""
    spans = [shard(number, count, engine=engine) for number in reversed(range(count))]
    assert spans[::-1] == [[4 * n // count, 4 * (n + 1) // count] for n in range(count)]
    monkeypatch.setattr(module, "open_search_engine", None)
    job = make_job("retrieve", shard.out, PARAMS, inputs)
    run(job)
    assert (job.out / "run.trec").read_bytes() == alone
    assert open_artifact(job.out).manifest.facts["shards"] == min(count, 4)
    assert sorted(path.suffix for path in (job.out / "shards").iterdir()) == [".json"] * count
    assert not (job.out / "work").exists()


def test_a_shard_that_is_missing_damaged_or_of_another_search_is_done_by_the_stage(
    make_job, inputs, shard, alone, monkeypatch
):
    for number in (0, 1, 2):
        shard(number, 3)
    folder = shard.out / "work"
    (folder / "0-1.npy").unlink()
    with (folder / "1-2.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    blocks = []
    searched = module.Stretches

    def noted(embeddings, numbers, *rest):
        blocks.extend(numbers)
        return searched(embeddings, numbers, *rest)

    monkeypatch.setattr(module, "Stretches", noted)
    run(make_job("retrieve", shard.out, PARAMS, inputs))
    assert (shard.out / "run.trec").read_bytes() == alone
    assert blocks == [0, 1]
    shard(0, 2)
    other = make_job("retrieve", shard.out, {**PARAMS, "depth": 3}, inputs)
    blocks.clear()
    run(other)
    assert blocks == [0, 1, 2, 3]
    assert len((shard.out / "run.trec").read_text().splitlines()) == 20 * 3


def test_a_shard_reads_none_of_what_others_have_found(shard, monkeypatch):
    """Of 500,000 queries a result takes a gigabyte: each shard reading all before it would grow with their square."""
    shard(0, 4)
    read, facts = [], work.Pieces.facts

    def noted(pieces, name):
        read.append(name)
        return facts(pieces, name)

    monkeypatch.setattr(work.Pieces, "facts", noted)
    shard(1, 4)
    assert read == []
    shard(0, 2)
    assert sorted(read) == ["0-1.npy", "1-2.npy"]


def test_shards_of_two_divisions_overlap_and_count_once(make_job, inputs, shard, alone):
    for number, count in ((0, 3), (1, 2), (2, 3), (1, 3)):
        shard(number, count)
    run(make_job("retrieve", shard.out, PARAMS, inputs))
    assert (shard.out / "run.trec").read_bytes() == alone


def test_a_killed_shard_begins_anew_and_a_finished_one_does_nothing(shard, monkeypatch):
    monkeypatch.setattr(
        module,
        "open_search_engine",
        lambda setting: SearchEngine(lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt)),
    )
    with pytest.raises(KeyboardInterrupt):
        shard(1, 2)
    assert not list((shard.out / "work").glob("*.json"))
    monkeypatch.undo()
    shard(1, 2)
    before = (shard.out / "work/2-4.npy").stat().st_mtime_ns
    monkeypatch.setattr(module, "open_search_engine", None)
    shard(1, 2)
    assert (shard.out / "work/2-4.npy").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("engine", "memory", "group"),
    [("faiss", 16, 20), ("torch", 16, 20), ("faiss", 0.008, 3), ("torch", 0.008, 3)],
)
def test_memory_and_engine_change_no_byte(
    tmp_path, make_job, inputs, alone, engine, memory, group, monkeypatch
):
    """Of 8,388 bytes a quarter is for the bests of 3 queries, 16 (7 + 32) bytes each."""
    job = make_job(
        "retrieve",
        tmp_path / "de.test-0123456789",
        PARAMS,
        inputs,
        {"engine": engine, "workers": 1},
    )
    monkeypatch.setattr(module, "SEARCH_MEMORY_MIB", memory)
    assert Retrieval(job).group == group
    run(job)
    assert (job.out / "run.trec").read_bytes() == alone


def test_faiss_searches_where_no_gpu_is(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert module.open_search_engine("auto").search is faiss_search.search_by_faiss


def test_a_gpu_without_an_engine_is_left_idle_and_a_line_says_so(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(retrieval_options, "search_engine", ["faiss"])
    assert module.open_search_engine("auto").search is faiss_search.search_by_faiss
    assert "FAISS searches on the CPU" in capsys.readouterr().err


def test_a_block_that_was_changed_is_refused_by_whoever_reads_it(
    tmp_path, make_job, embed, dual_inputs, inputs, command
):
    """Other shards do not read it: hashing all vectors in every job would take longer than searching a part of them."""
    other = embed(tmp_path / "embeddings" / "p-0123456789", dual_inputs, side="passages")
    with other.path("blocks/00003.npy").open("ab") as file:
        file.write(b"x")
    job = make_job(
        "retrieve",
        tmp_path / "r-0123456789",
        PARAMS,
        {**inputs, "passages": other},
        {"shard": 0, "shards": 2},
    )
    run_shard("retrieve-shard", command(job, "shards/0-of-2.json"))
    with pytest.raises(UserError, match=r"blocks/00003.npy: changed since it was written"):
        run(read_job("retrieve", command(replace(job, execution={}))))
