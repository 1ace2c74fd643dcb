"""Peak memory of the stage `embeddings` on collections of different sizes: it must not grow with the corpus.

    python benchmarks/encoding_memory.py [--quick] [--passages N…] [--dtype int8] [--out FILE]

The script runs the stage as it is, on generated token ids and with an encoder without layers: this takes minutes
instead of hours, and reading, storing and writing are the same. Each size is a process of its own and has a line,
separated by tabs: what, peak MiB, nothing (there is no peer), the ratio to the smallest size, unit. `--quick` takes 20,
40 and 80 thousand passages. `--out` also writes the figures as Markdown, with the machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from figures import markdown

from tandem.store.environment import peak_mib

FULL, QUICK = (100_000, 400_000, 1_600_000), (20_000, 40_000, 80_000)
VOCABULARY, LONGEST, BLOCK = 20_000, 36, 16384
PARAMS = {"side": "passages", "block": BLOCK, "batch_tokens": 16384, "precision": "fp32"}
ENCODER = {"hidden": 64, "layers": 0, "heads": 4, "feed_forward": 256, "positions": 48}
TOWERS = {"shared": True, "pooling": "mean", "normalize": True, "temperature": 0.05}
NOTE = """`python benchmarks/encoding_memory.py`: the stage on generated token ids, {tokens:.0f} a passage, by an
encoder without layers; vectors of {hidden} numbers as {dtype}. The largest collection's token ids and vectors take
{held:,.0f} MiB on disk. ratio: against the smallest collection."""


def model(folder: Path) -> dict[str, object]:
    """Write the artifact `model`; return its tokenizer's digest and template, as the stage `tokens` records them."""
    from transformers import BertTokenizer

    from tandem.contrib.pretraining.options import VocabularyParams
    from tandem.contrib.pretraining.vocabulary import SPECIAL, untrained
    from tandem.models.dual import DualEncoder
    from tandem.models.hub import hash_tokenizer
    from tandem.models.tokens import Template
    from tandem.store.job import Job, writing

    words = [*SPECIAL, "a", "b", *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL) - 2))]
    tokenizer = BertTokenizer(vocab={word: at for at, word in enumerate(words)})
    shape = VocabularyParams(vocabulary=VOCABULARY, lowercase=True, seed=1, **ENCODER)
    untrained(shape, VOCABULARY).save_pretrained(folder / "encoder")
    with writing(Job("model", folder / "model", {"objective": "dual", "train": {}}, {})) as draft:
        DualEncoder.start(folder / "encoder", **TOWERS).save(draft.folder / "dual", tokenizer)
    digest = hash_tokenizer(
        (folder / "model/dual/shared/tokenizer.json").read_text(encoding="utf-8")
    )
    return {"dtype": "uint16", "tokenizer": digest, "template": asdict(Template.of(tokenizer))}


def passages(count: int) -> Iterator[list[np.ndarray]]:
    """Yield token ids of `count` passages, a block at a time; a larger collection begins with a smaller one."""
    for first in range(0, count, BLOCK):
        rng = np.random.default_rng([1, first])
        ends = rng.integers(4, LONGEST + 1, BLOCK).cumsum()
        ids = rng.integers(10, VOCABULARY, ends[-1], np.uint16)
        yield np.split(ids, ends[:-1])[: count - first]


def generate(folder: Path, count: int, meta: dict[str, object]) -> float:
    """Write the artifacts `dataset` (only its size matters) and `tokens`; return the mean tokens of a passage."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tandem.models.ragged import write_ragged
    from tandem.store.artifact import open_artifact
    from tandem.store.files import write_json
    from tandem.store.job import Job, writing

    with writing(Job("dataset", folder / "dataset", {}, {})) as draft:
        pq.write_table(pa.table({"doc_id": np.arange(count)}), draft.path("corpus.parquet"))
    params, inputs = (
        {"passage_length": LONGEST, "query_length": 32},
        {"dataset": open_artifact(folder / "dataset")},
    )
    with writing(Job("tokens", folder / "tokens", params, inputs)) as draft:
        rows, tokens = write_ragged(draft.folder, "passages", passages(count), "uint16")
        write_ragged(draft.folder, "queries", [], "uint16")
        write_json(draft.path("meta.json"), meta)
    return tokens / rows


def measured(folder: Path, dtype: str) -> float:
    """Run the stage in this process; return its peak memory in MiB."""
    from tandem.retrieval.encode import run
    from tandem.store.artifact import open_artifact
    from tandem.store.job import Job

    inputs = {role: open_artifact(folder / role) for role in ("dataset", "tokens")}
    inputs["model"] = open_artifact(folder.parent / "model")
    run(
        Job(
            "embeddings",
            folder / "embeddings",
            PARAMS | {"dtype": dtype},
            inputs,
            {"workers": os.cpu_count()},
        )
    )
    return peak_mib()


def measure(folder: Path, dtype: str) -> float:
    """Return `measured` of a process of its own."""
    command = [sys.executable, __file__, "--measure", str(folder), dtype]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.decode()[-2000:]}")
    return float(json.loads(done.stdout))


def main() -> None:
    """Generate the inputs, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20, 40 and 80 thousand passages")
    parser.add_argument(
        "--passages", type=int, nargs="+", help="sizes of the collections, ascending"
    )
    parser.add_argument(
        "--dtype", choices=["fp16", "int8"], default="fp16", help="how vectors are stored"
    )
    parser.add_argument("--out", type=Path, help="also write the figures to this Markdown file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(Path(options.measure[0]), options.measure[1])))
        return
    sizes, lines, smallest, tokens = (
        options.passages or (QUICK if options.quick else FULL),
        [],
        0.0,
        0.0,
    )
    with tempfile.TemporaryDirectory() as temporary:
        meta = model(Path(temporary))
        for size in sizes:
            folder = Path(temporary) / str(size)
            tokens = generate(folder, size, meta)
            peak = measure(folder, options.dtype)
            smallest = smallest or peak
            lines.append(
                f"encode {size:,} passages peak memory\t{peak:,.0f}\t\t{peak / smallest:.2f}\tMiB"
            )
            print(lines[-1], flush=True)
            shutil.rmtree(folder)
    if options.out:
        held = sizes[-1] * (2 * tokens + (68 if options.dtype == "int8" else 128)) / 2**20
        note = NOTE.format(tokens=tokens, hidden=ENCODER["hidden"], dtype=options.dtype, held=held)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(markdown("Peak memory of the stage `embeddings`", note, lines))


if __name__ == "__main__":
    main()
