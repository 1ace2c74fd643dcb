"""One bit of every file that the tiny graph has made: `verify` names each of them, and nothing else."""

import json
import random
import shutil
from pathlib import Path


def flip(path: Path, rng: random.Random) -> None:
    """Change one bit in place."""
    place, bit = rng.randrange(path.stat().st_size), 1 << rng.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        (old,) = file.read(1)
        file.seek(place)
        file.write(bytes([old ^ bit]))


def test_a_flipped_bit_in_every_file_of_every_kind_is_named(
    tiny_dag, tmp_path, run_command, monkeypatch
):
    shutil.copytree(tiny_dag.folder / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    assert run_command("verify")[0] == 0
    manifests = sorted(Path("results").glob("*/*/*/stage.json"))
    listed = [
        path.parent / name for path in manifests for name in json.loads(path.read_text())["files"]
    ]
    stores = sorted(Path("results").glob("*/pairs/*/*"))
    orders = [
        path for path in sorted(Path("results").glob("*/order/*/*")) if path.name != "order.json"
    ]
    kinds = {path.parts[2] for path in (*listed, *stores, *orders)}
    assert kinds >= {
        "dataset",
        "encoder",
        "tokens",
        "lucene",
        "bm25",
        "candidates",
        "model",
        "embeddings",
        "retrieve",
    }
    assert kinds >= {"rerank", "score", "pairs", "order"}
    rng = random.Random(7)
    damaged = [path for path in (*listed, *stores, *orders) if path.stat().st_size]
    for path in damaged:
        flip(path, rng)
    status, lines = run_command("verify", "--json")
    assert status == 1
    faults = [json.loads(line) for line in lines]
    assert {Path(fault["path"]) for fault in faults} == set(damaged)
    assert len(faults) == len(damaged)
    assert {fault["what"] for fault in faults} <= {"changed", "damaged"}
