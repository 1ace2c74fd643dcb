"""Embeddings: int8, threads beside the model, and processes that are killed at random moments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import killed_encoding as program
import numpy as np
import pytest
import torch

from tandem.cluster import work
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.encode import SideEncoder, run
from tandem.store import artifact
from tandem.store.artifact import MANIFEST, open_artifact
from tandem.store.job import run_shard

MAPS = Path("/proc/self/maps")
PARAMS = {"side": "passages", "block": 16, "batch_tokens": 256, "precision": "fp32"}


@pytest.fixture(scope="module")
def in_int8(tmp_path_factory, embed, dual_inputs):
    return embed(
        tmp_path_factory.mktemp("int8") / "de-0123456789",
        dual_inputs,
        side="passages",
        dtype="int8",
    )


def test_int8_is_the_models_vector_within_half_a_scale(in_int8, dual_model, tokens):
    model, opened = DualEncoder.load(dual_model.folder / "dual").eval(), Tokens.open(tokens)
    with torch.inference_mode():
        texts = [opened.passages[i] for i in range(60)]
        expected = (
            model.encode("passage", texts, opened.template, "fp32").numpy().astype(np.float64)
        )
    error = np.abs(Embeddings(in_int8, "passages").take(0, 60) - expected)
    half = np.abs(expected).max(axis=1, keepdims=True) / 127 / 2
    assert (error <= half * (1 + 1e-3)).all()  # batched otherwise, the model's last bits are others
    assert (error.max(axis=1) > half[:, 0] / 2).all()


def test_int8_is_told(in_int8):
    facts = json.loads((in_int8.folder / "blocks/00003.json").read_text())
    assert facts.keys() == {
        "rows",
        "dtype",
        "sha256",
        "origin",
        "model",
        "precision",
        "device",
        "kept",
    }
    assert (facts["rows"], facts["dtype"], facts["precision"]) == (12, "int8", "fp32")
    assert json.loads(in_int8.path("meta.json").read_text())["dtype"] == "int8"


def test_a_loss_by_int8_is_warned_of(tmp_path, embed, dual_inputs, monkeypatch):
    embedded = embed(
        tmp_path / "de-0123456789", dual_inputs, side="passages", dtype="int8", block=60
    )
    share = embedded.manifest.facts["kept_by_int8"]
    assert 0.9 < share <= 1
    assert "warnings" not in embedded.manifest.facts
    monkeypatch.setattr("tandem.retrieval.encode.LEAST_KEPT", 1.01)
    embedded = embed(
        tmp_path / "de-9876543210", dual_inputs, side="passages", dtype="int8", block=60
    )
    (line,) = embedded.manifest.facts["warnings"]
    assert line.startswith(f"int8 keeps {share:.0%} of the 10 nearest of a sample of passages")


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_and_threads_change_no_byte_of_int8(
    tmp_path, make_job, command, dual_inputs, in_int8, shards
):
    before = torch.get_num_threads()
    out, params = tmp_path / "de-0123456789", {**PARAMS, "dtype": "int8"}
    try:
        for shard in range(shards):
            execution = {"shard": shard, "shards": shards, "workers": 1 + shard % 2}
            job = make_job("embeddings", out, params, dual_inputs, execution)
            run_shard("embeddings-shard", command(job, f"shards/{shard}-of-{shards}.json"))
    finally:
        torch.set_num_threads(before)
    run(make_job("embeddings", out, params, dual_inputs))
    assert open_artifact(out).manifest.files == in_int8.manifest.files


@pytest.fixture(scope="module")
def killed(tmp_path_factory, make_job, command, dual_inputs):
    """Encodings in both dtypes, each killed at random moments, four times or `TANDEM_KILLS`, until it ended."""
    folder, plan, kills = (
        tmp_path_factory.mktemp("killed"),
        [],
        int(os.environ.get("TANDEM_KILLS", "4")),
    )
    for dtype in ("fp16", "int8"):
        params = {**PARAMS, "block": 7, "dtype": dtype}
        words = command(make_job("embeddings", folder / f"{dtype}-0123456789", params, dual_inputs))
        plan.append({"words": words, "kills": kills})
    (folder / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, program.__file__, str(folder / "plan.json")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_killed_at_random_moments_it_ends_the_same(killed, tmp_path, embed, dual_inputs, dtype):
    deaths = json.loads((killed / f"{dtype}-0123456789.killed").read_text())
    assert len({death["finished"] for death in deaths}) > 1
    assert any(death["half"] for death in deaths)  # while the thread that writes was at it
    resumed = open_artifact(killed / f"{dtype}-0123456789")
    undisturbed = embed(
        tmp_path / f"{dtype}-0123456789", dual_inputs, side="passages", block=7, dtype=dtype
    )
    assert resumed.manifest.files == undisturbed.manifest.files
    left = {path.name for path in resumed.folder.glob("blocks/*")}
    assert left == {f"0000{number}.{kind}" for number in range(9) for kind in ("npy", "json")}


def test_a_block_that_is_there_is_read_once(
    tmp_path, make_job, dual_inputs, embed, passages, monkeypatch
):
    """What was checked is not hashed again for the manifest."""
    embedded, seen, sha256 = (
        embed(tmp_path / "de-0123456789", dual_inputs, side="passages"),
        [],
        artifact.sha256,
    )

    def noted(path):
        seen.append(path.name)
        return sha256(path)

    (embedded.folder / MANIFEST).unlink()
    for module in (artifact, work):
        monkeypatch.setattr(module, "sha256", noted)
    run(make_job("embeddings", embedded.folder, PARAMS, dual_inputs))
    assert sorted(name for name in seen if name.endswith(".npy")) == [
        f"0000{number}.npy" for number in range(4)
    ]
    assert open_artifact(embedded.folder).manifest.files == passages.manifest.files


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not tell what is mapped")
def test_what_was_read_for_a_block_is_not_held(tmp_path, make_job, dual_inputs):
    encoder = SideEncoder(make_job("embeddings", tmp_path / "de-0123456789", PARAMS, dual_inputs))
    texts, expected = encoder.read(range(16, 32)), Tokens.open(dual_inputs["tokens"]).passages
    assert [texts[i].tolist() for i in range(16)] == [expected[i].tolist() for i in range(16, 32)]
    del expected
    assert str(dual_inputs["tokens"].folder) not in MAPS.read_text()


def test_an_error_of_the_thread_that_writes_ends_the_stage(tmp_path, make_job, dual_inputs):
    job = make_job("embeddings", tmp_path / "de-0123456789", PARAMS, dual_inputs)
    (job.out / "blocks/00001.npy").mkdir(parents=True)  # in its way
    with pytest.raises(IsADirectoryError, match=r"00001\.npy"):
        run(job)
    assert (job.out / "blocks/00000.json").exists()
    assert not (job.out / MANIFEST).exists()


def test_an_error_of_the_thread_that_reads_ends_the_stage(
    tmp_path, make_job, dual_inputs, monkeypatch
):
    read = SideEncoder.read

    def twice(encoder, rows):
        if rows[0] == 32:
            raise UserError("tokens: cannot be read")
        return read(encoder, rows)

    monkeypatch.setattr(SideEncoder, "read", twice)
    job = make_job("embeddings", tmp_path / "de-0123456789", PARAMS, dual_inputs)
    with pytest.raises(UserError, match="tokens: cannot be read"):
        run(job)
    assert sorted(path.name for path in job.out.glob("blocks/*.json")) == [
        "00000.json",
        "00001.json",
    ]
