"""Embeddings: right vectors, and the same bytes however the work is split or interrupted."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from messages import other_dataset

from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval.encode import run
from tandem.store.artifact import MANIFEST, open_artifact
from tandem.store.job import run_shard

PARAMS = {"side": "passages", "block": 16, "batch_tokens": 256, "precision": "fp32"}


def contents(artifact):
    """sha256 of every file the manifest lists."""
    return artifact.manifest.checksums


def test_vectors_are_the_models(passages, queries, dual_model, tokens):
    model, opened = DualEncoder.load(dual_model.folder / "dual").eval(), Tokens.open(tokens)
    sides = {
        "passage": (passages, opened.passages, range(60)),
        "query": (queries, opened.queries, range(40, 60)),
    }
    for tower, (artifact, texts, rows) in sides.items():
        files = sorted(name for name in artifact.manifest.files if name.endswith(".npy"))
        vectors = np.concatenate([np.load(artifact.path(name)) for name in files])
        assert vectors.dtype == np.float16
        with torch.inference_mode():
            expected = model.encode(
                tower, [texts[i] for i in rows], opened.template, "fp32"
            ).numpy()
        assert np.abs(vectors - expected).max() < 2e-3 * np.abs(expected).max()
        assert vectors.shape == expected.shape


def test_manifest_and_meta(passages, queries):
    assert sorted(contents(passages)) == [f"blocks/0000{i}.npy" for i in range(4)] + ["meta.json"]
    assert [len(np.load(passages.path(f"blocks/0000{i}.npy"))) for i in range(4)] == [
        16,
        16,
        16,
        12,
    ]
    meta = json.loads(passages.path("meta.json").read_text())
    assert meta == {
        "rows": 60,
        "block": 16,
        "dtype": "fp16",
        "side": "passages",
        "model": "de-0000000004",
        "dimension": 32,
        "pooling": "cls",
        "normalize": False,
        "temperature": 1.0,
    }
    ids = pq.read_table(queries.path("ids.parquet"))["query_id"].to_pylist()
    assert ids[:2] == ["test-otter", "test-heron"]
    assert len(ids) == json.loads(queries.path("meta.json").read_text())["rows"] == 20


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_change_no_byte(tmp_path, make_job, command, dual_inputs, passages, shards, capsys):
    out = tmp_path / "de-0123456789"
    for shard in reversed(range(shards)):
        execution = {"shard": shard, "shards": shards}
        words = command(
            make_job("embeddings", out, PARAMS, dual_inputs, execution),
            f"shards/{shard}-of-{shards}.json",
        )
        run_shard("embeddings-shard", words)
        entries = json.loads((out / f"shards/{shard}-of-{shards}.json").read_text())
        assert list(entries) == [f"blocks/{n:05d}.npy" for n in range(shard, 4, shards)]
    assert not (out / MANIFEST).exists()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    run(make_job("embeddings", out, PARAMS, dual_inputs))
    assert contents(open_artifact(out)) == contents(passages)
    # nothing was encoded again
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")} == before


def test_threads_change_no_byte(tmp_path, monkeypatch, make_job, dual_inputs, passages):
    # however many this machine has
    monkeypatch.setattr("tandem.models.device.count_usable_cores", lambda: 3)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            job = make_job(
                "embeddings",
                tmp_path / f"de-{threads:010}",
                PARAMS,
                dual_inputs,
                {"workers": threads},
            )
            run(job)
            assert torch.get_num_threads() == threads
            assert contents(open_artifact(job.out)) == contents(passages)
    finally:
        torch.set_num_threads(before)


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, make_job, command, dual_inputs, passages):
    """SIGKILL a real process after its first block; what it finished is kept, what it left half is made again."""
    out = tmp_path / "de-0123456789"
    words = command(make_job("embeddings", out, PARAMS, dual_inputs))
    # One slow batch at a time, so that there is a middle to be killed in.
    slow = (
        "import sys, time; from tandem.models.dual import DualEncoder; encode = DualEncoder.encode\n"
        "DualEncoder.encode = lambda *args: (time.sleep(0.3), encode(*args))[1]\n"
        "from tandem.__main__ import main; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow, "embeddings", *words], env={**os.environ}
    )
    while not (out / "blocks/00000.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / MANIFEST).exists()
    finished = sorted(path.name for path in out.glob("blocks/*.json"))
    assert 1 <= len(finished) < 4
    first = (out / "blocks/00000.npy").stat()
    (out / "blocks/00003.npy").write_bytes(b"torn")  # as after a power cut
    run(make_job("embeddings", out, PARAMS, dual_inputs))
    assert contents(open_artifact(out)) == contents(passages)
    after = (out / "blocks/00000.npy").stat()
    assert (first.st_ino, first.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_damaged_block_is_made_again_alone(tmp_path, make_job, dual_inputs, embed, passages):
    artifact = embed(tmp_path / "de-0123456789", dual_inputs, side="passages")
    damaged, mtime = (
        artifact.path("blocks/00001.npy"),
        artifact.path("blocks/00002.npy").stat().st_mtime_ns,
    )
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(
        UserError,
        match=r"00001.npy: changed since it was written .*; delete .*stage.json and run again",
    ):
        open_artifact(artifact.folder)
    (artifact.folder / MANIFEST).unlink()
    run(make_job("embeddings", artifact.folder, PARAMS, dual_inputs))
    assert contents(open_artifact(artifact.folder)) == contents(passages)
    assert artifact.path("blocks/00002.npy").stat().st_mtime_ns == mtime


def test_blocks_of_another_model_do_not_count(tmp_path, embed, dual_inputs, make_model, passages):
    out = tmp_path / "de-0123456789"
    first = contents(embed(out, dual_inputs, side="passages"))
    (out / MANIFEST).unlink()
    other = make_model(tmp_path / "model" / "de-0000000099", ("dual",), seed=99)
    second = contents(embed(out, {**dual_inputs, "model": other}, side="passages"))
    assert all(first[name] != second[name] for name in first if name.endswith(".npy"))


def test_vectors_that_fp16_cannot_hold_are_refused(tmp_path, make_job, dual_inputs, make_model):
    model = make_model(tmp_path / "model" / "big-0123456789", ("dual",))
    from safetensors.torch import load_file, save_file

    weights = model.folder / "dual/passage/model.safetensors"
    tensors = load_file(weights)
    name = "encoder.layer.1.output.LayerNorm.weight"
    save_file({**tensors, name: tensors[name] * 1e6}, weights, metadata={"format": "pt"})
    job = make_job("embeddings", tmp_path / "x-0123456789", PARAMS, dual_inputs)
    job.inputs["model"] = model
    with pytest.raises(
        UserError, match=r"big-0123456789/dual/passage: a vector holds [\d.e+]+, float16 ends"
    ):
        run(job)
    assert not list(job.out.rglob("*.npy"))


def test_partners_that_do_not_fit_are_refused(
    tmp_path, make_job, make_dataset, make_tokens, dual_inputs, cross_model, dataset, tokens
):
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", [("x", "", "an otter")])
    out = tmp_path / "x-0123456789"
    with pytest.raises(
        UserError, match=other_dataset("tokens", "tiny-0000000001", "other-0123456789")
    ):
        run(make_job("embeddings", out, PARAMS, {**dual_inputs, "dataset": other}))
    with pytest.raises(
        UserError, match="ce-0000000005: has no dual encoder; it holds: cross-encoder"
    ):
        run(make_job("embeddings", out, PARAMS, {**dual_inputs, "model": cross_model}))
    long = make_tokens(tmp_path / "tokens" / "long-0123456789", dataset, passage_length=120)
    with pytest.raises(
        UserError,
        match=r"passage_length, padded, allows inputs of 128 tokens; the model \(bert\) takes 96",
    ):
        run(make_job("embeddings", out, PARAMS, {**dual_inputs, "tokens": long}))
    with pytest.raises(
        UserError, match="has no queries of the split eval; it has dev, test, train"
    ):
        run(
            make_job("embeddings", out, {**PARAMS, "side": "queries", "split": "eval"}, dual_inputs)
        )
    assert not out.exists()


def test_another_tokenizer_is_refused(tmp_path, make_job, make_model, dual_inputs):
    model = make_model(tmp_path / "model" / "de-0123456789", ("dual",))
    path = model.folder / "dual/passage/tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["normalizer"]["lowercase"] = not tokenizer["normalizer"]["lowercase"]
    path.write_text(json.dumps(tokenizer))
    job = make_job("embeddings", tmp_path / "x-0123456789", PARAMS, dual_inputs)
    job.inputs["model"] = model
    with pytest.raises(
        UserError, match="tokenizer.json: not the tokenizer that made .*tokens/tiny-0000000003"
    ):
        run(job)


def test_a_shard_that_is_none_of_them_is_refused(make_job, command, dual_inputs, tmp_path):
    job = make_job(
        "embeddings", tmp_path / "x-0123456789", PARAMS, dual_inputs, {"shard": 3, "shards": 3}
    )
    with pytest.raises(UserError, match="--run.shard is 3; of 3 shards, 0 to 2 are allowed"):
        run_shard("embeddings-shard", command(job, "shards/3-of-3.json"))


def test_the_command_line_is_the_stage(tmp_path, make_job, command, dual_inputs, passages):
    """The very line a rule prints, as a process."""
    out = tmp_path / "de-0123456789"
    words = command(make_job("embeddings", out, PARAMS, dual_inputs, {"workers": 2}))
    done = subprocess.run(
        [sys.executable, "-m", "tandem", "embeddings", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert contents(open_artifact(out, "embeddings")) == contents(passages)
    assert "60/60 passages" in done.stderr
    assert "tok/s" in done.stderr
    assert (
        hashlib.sha256((out / "blocks/00000.npy").read_bytes()).hexdigest()
        == contents(passages)["blocks/00000.npy"]
    )
