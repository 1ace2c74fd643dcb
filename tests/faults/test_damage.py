"""Files that are removed, cut or changed between stages: the next one names the file and how to rebuild it."""

import os
import random

import pytest
from faults_kit import TORTURE


def flip(path, rng):
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


HARM = {
    "removed": (lambda path, rng: path.unlink(), "missing"),
    "truncated": (
        lambda path, rng: os.truncate(path, path.stat().st_size // 2),
        "changed since it was written",
    ),
    "flipped": (flip, "changed since it was written"),
}


@pytest.mark.parametrize("how", HARM)
def test_a_damaged_input_is_named_and_rebuilt_as_told(copied, undisturbed, how):
    rng, (harm, message) = random.Random(how), HARM[how]
    readers = [
        candidate
        for candidate in copied.stages
        if candidate.upstream and candidate.kind not in ("lucene", "retrieve")
    ]
    for reader in rng.sample(readers, 8) if TORTURE else [copied.named("score", "bm25.test")]:
        stage = rng.choice(
            [candidate for candidate in reader.upstream.values() if candidate.kind != "lucene"]
        )
        name = rng.choice(sorted(undisturbed.files(stage)))
        path = copied.folder / stage.folder / name
        harm(path, rng)
        copied.remove(reader)
        code, output = copied.run(reader)
        assert code == 1
        (line,) = [line for line in output.splitlines() if line.startswith("tandem ")]
        assert f"{stage.folder}/{name}: {message}" in line
        assert f"delete {stage.manifest} and run again to rebuild it" in line
        assert "Traceback" not in output
        (copied.folder / stage.manifest).unlink()
        assert copied.run(stage)[0] == 0
        assert copied.run(reader)[0] == 0
        assert copied.files(stage) == undisturbed.files(stage)
        assert copied.files(reader) == undisturbed.files(reader)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "bm25"}', "\x00\xff"])
def test_a_damaged_manifest_is_a_line(copied, text):
    reader = copied.named("score", "bm25.test")
    run = reader.upstream["run"]
    (copied.folder / run.manifest).write_text(text)
    copied.remove(reader)
    code, output = copied.run(reader)
    assert code == 1
    assert f"{run.manifest}" in output
    assert len(output.strip().splitlines()) == 1
