"""Texts for passages by the stage `generated`, against transformers' `generate` on the same model and passages.

    python benchmarks/generation.py [--quick] [--only fp32 bf16] [--texts N] [--made-up] [--encoder FOLDER] [--out FILE]

For the meaning of the lines, see benchmarks/turns.py. The generator is a T5 with the encoder's vocabulary, trained for
some steps to write the passages' queries; both sides decode greedily. The peer takes the passages in their order.
"""

from pathlib import Path

import pyarrow.parquet as pq
import stages
import torch
from turns import Work, take

from tandem.models.device import device

TRAIN = {
    "steps": 30,
    "pairs_per_batch": 8,
    "lr": 3e-3,
    "dropout": 0.0,
    "seed": 1,
    "precision": "fp32",
}
NEW = {"layers": 2, "decoder_layers": 2, "heads": 6, "feed_forward": 1024, "seed": 1}
TOKENS, LENGTH, BATCH = 24, 256, 64
OPTIONS = {
    "method": "greedy",
    "number": 1,
    "tokens": TOKENS,
    "length": LENGTH,
    "seed": 1,
    "batch_tokens": 8192,
}
NOTE = """`python benchmarks/generation.py`: {count:,} passages of {texts}, at most 24 tokens each, greedy; a T5 of two
and two layers with the vocabulary of all-MiniLM-L6-v2; ours and the peer in turn, medians of {rounds} rounds. Ours is
the stage `generated`, which sorts passages by length and writes Parquet with log-likelihoods; the peer, `generate` of
transformers on batches of 64 passages, keeps its texts in memory."""


def prepare(folder: Path, encoder: Path, count: int, made_up: bool) -> None:
    """Write `count` passages and the generator."""
    from tandem.contrib.generation.starting import run_new
    from tandem.contrib.generation.train import run
    from tandem.store.job import Job

    stages.prepare(folder, encoder, "dual", count, 1, made_up)
    start = stages.stage(folder, "new_generator", run_new, NEW, "encoder")
    params = {"split": "test", "length": 64, "target_length": TOKENS, "train": TRAIN}
    inputs = {"start": start, **stages.open_prepared(folder, "dataset")}
    run(Job("train_generator", stages.place(folder, "train_generator"), params, inputs))


def generated(folder: Path, precision: str) -> list[dict]:
    """Return the rows that our stage writes."""
    from tandem.contrib.generation import texts
    from tandem.store.artifact import open_artifact
    from tandem.store.job import Job

    out = stages.place(folder, "generated")
    if (out / "stage.json").exists():
        (out / "stage.json").unlink()
    prepared = stages.open_prepared(folder, "dataset", "train_generator")
    inputs = {"dataset": prepared["dataset"], "generator": prepared["train_generator"]}
    texts.run(Job("generated", out, OPTIONS | {"precision": precision}, inputs))
    return pq.read_table(open_artifact(out, verify=False).path("generated.parquet")).to_pylist()


def ours(folder: Path, precision: str) -> int:
    """Return the number of tokens that our stage generates."""
    return sum(row["tokens"] for row in generated(folder, precision))


def theirs(folder: Path, precision: str) -> list[torch.Tensor]:
    """Return the peer's tokens for each passage."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    source = stages.place(folder, "train_generator") / "hf"
    model = AutoModelForSeq2SeqLM.from_pretrained(source).to(device()).eval()
    if precision == "bf16":
        model = model.bfloat16()
    tokenizer = AutoTokenizer.from_pretrained(source)
    passages = [group[0] for group in stages.texts(folder).passages]
    written = []
    for start in range(0, len(passages), BATCH):
        batch = passages[start : start + BATCH]
        inputs = tokenizer(
            batch, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        ).to(device())
        options = {
            "attention_mask": inputs["attention_mask"],
            "max_new_tokens": TOKENS,
            "do_sample": False,
        }
        written += list(model.generate(inputs["input_ids"], **options)[:, 1:].cpu())
    return written


def peer(folder: Path, precision: str) -> int:
    """Return the number of tokens that the peer generates, without padding."""
    return sum(int((row != 0).sum()) for row in theirs(folder, precision))


def difference(folder: Path, precision: str) -> float:
    """Return the share of our texts that differ from the peer's in fp32."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(stages.place(folder, "train_generator") / "hf")
    expected = [
        " ".join(tokenizer.decode(row, skip_special_tokens=True).split())
        for row in theirs(folder, "fp32")
    ]
    texts = [row["text"] for row in generated(folder, precision)]
    return sum(text != other for text, other in zip(texts, expected, strict=True)) / len(expected)


if __name__ == "__main__":
    take(
        Work(
            "Generation",
            "generate",
            "tokens",
            (2000, 128),
            prepare,
            {"ours": ours, "peer": peer},
            difference,
            NOTE,
        )
    )
