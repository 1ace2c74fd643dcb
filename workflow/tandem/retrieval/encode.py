"""Who encodes: a dual encoder's tower and the token ids it reads."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tandem.artifact import Job, write_json, writing
from tandem.data.collection import Collection
from tandem.data.rows import Rows, query_rows, split_rows
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder
from tandem.models.encoding import STEP, encode_all
from tandem.models.execution import accelerate
from tandem.models.frozen import kernels
from tandem.models.hub import check_length
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import Tokens
from tandem.overlap import ahead, behind
from tandem.progress import Progress, say
from tandem.retrieval.embeddings import FP16, Blocks, Vectors, block_name
from tandem.retrieval.inputs import part_files, require_dataset, require_part, require_tokenizer
from tandem.retrieval.pair_scores import read_shard

TOWERS = {"passages": "passage", "queries": "query"}


def dtype(job: Job) -> str:
    """How vectors are stored, `fp16` or `int8`: a parameter of passages; queries, of which there are few, stay fp16."""
    return str(job.params.get("dtype", FP16))


class Encoder:
    """A dual encoder's tower with the token ids it reads.

    Raises:
        UserError: the model, the token ids and the dataset do not fit together.
    """

    def __init__(self, job: Job) -> None:
        require_dataset(job, "tokens")
        use_workers(job.execution.workers)
        self.tokens, folder = job.inputs["tokens"], require_part(job.inputs["model"], "dual")
        self.model = DualEncoder.load(folder).to(device()).eval()
        self.tower = TOWERS[job.params["side"]]
        require_tokenizer(folder / ("shared" if self.model.shared else self.tower), self.tokens)
        self.template = Tokens.open(self.tokens).template
        self.budget: int = job.params["batch_tokens"]
        self.mode = resolve_precision(job.params["precision"])
        accelerate(self.model, job.execution, self.budget, self.mode, training=False)
        self.made = torch.float16 if dtype(job) == FP16 else torch.float32
        longest = self.tokens.params[f"{self.tower}_length"] + self.template.extra[0]
        check_length(
            self.model.towers[self.tower],
            -(-longest // STEP) * STEP,
            f"{self.tokens.folder}: {self.tower}_length, padded,",
        )

    def read(self, rows: Rows | range) -> Ragged:
        """Token ids of the texts at `rows`, in memory.

        Files are mapped anew each time: what was read for one block would else count as memory to the end.
        """
        opened = Tokens.open(self.tokens)
        texts = opened.queries if self.tower == "query" else opened.passages
        return texts.take(np.asarray(rows))

    def encode(self, texts: Ragged, progress: Progress) -> Vectors:
        """Vectors of texts, shape (texts, dimension): fp16, or float32 where int8 will be made of them.

        Raises:
            UserError: a number of a vector does not fit.
        """

        def told(lengths: Ids) -> None:
            """Count a batch."""
            progress.add(len(lengths), tokens=int(lengths.sum()))

        how = self.template, self.mode, self.budget, self.made, told
        vectors: Vectors = encode_all(self.model, self.tower, texts, *how).numpy()
        return vectors


def select(job: Job) -> tuple[Rows | range, list[str] | None]:
    """The rows to encode, in order, and the ids of queries (None for passages, which keep the corpus' order)."""
    collection = Collection(job.inputs["dataset"])
    if job.params["side"] == "passages":
        return range(collection.passages), None
    rows = split_rows(collection, job.params["split"])
    return rows, query_rows(collection).ids(rows)


def origin(job: Job) -> str:
    """Digest of what decides the vectors: parameters and the very files they are made from."""
    inputs = {role: job.inputs[role].manifest["files"] for role in ("dataset", "tokens")}
    inputs["model"] = part_files(job.inputs["model"], "dual")
    return hashlib.sha256(json.dumps([job.params, inputs], sort_keys=True).encode()).hexdigest()


def blocks_of(job: Job, rows: Rows | range) -> Blocks:
    """The blocks that `rows` are encoded in."""
    return Blocks(job.out, len(rows), job.params["block"], origin(job), dtype(job))


def encode_blocks(job: Job, rows: Rows | range, blocks: Blocks, numbers: range) -> dict[int, dict[str, Any]]:
    """Make the blocks that are still missing among `numbers`.

    Returns:
        What is known about each of them, in order.
    """
    told = blocks.finished(numbers, job.key, job.execution.workers or 1)
    missing = [number for number in numbers if number not in told]
    if missing:
        encoder = Encoder(job)
        facts = {"model": job.inputs["model"].key, "precision": encoder.mode, "device": kernels()}
        sizes = {number: len(rows[blocks.span(number)]) for number in numbers}
        texts = ((number, encoder.read(rows[blocks.span(number)])) for number in missing)

        def keep(number: int, vectors: Vectors) -> None:
            """Write a block."""
            told[number] = blocks.write(number, vectors, facts)

        done = sum(sizes[number] for number in told)
        with (
            Progress(f"encode {job.key}", sum(sizes.values()), job.params["side"], done=done) as progress,
            behind(keep) as put,
            ahead(texts) as coming,
        ):
            for number, part in coming:
                put(number, encoder.encode(part, progress))
    return {number: told[number] for number in numbers}


def run_shard(words: list[str]) -> int:
    """Command `encode-shard`: make every n-th block, beginning with this shard's number; see `read_shard`."""
    job, shard, shards = read_shard("embeddings", words)
    rows, _ = select(job)
    blocks = blocks_of(job, rows)
    told = encode_blocks(job, rows, blocks, range(shard, len(blocks), shards))
    write_json(Path(words[words.index("--out") + 1]), {block_name(n): facts for n, facts in told.items()})
    return 0


def run(job: Job) -> None:
    """Make what no shard has made, check every block, and write the manifest."""
    require_dataset(job, "tokens")
    rows, ids = select(job)
    blocks = blocks_of(job, rows)
    told = encode_blocks(job, rows, blocks, range(len(blocks)))
    blocks.tidy()
    made = {what: sorted({facts.get(what, "unknown") for facts in told.values()}) for what in ("precision", "device")}
    for what, found in made.items():
        if len(found) > 1:
            say(f"embeddings {job.key}: blocks were made in {what} {' and '.join(found)}, of other last bits")
    with writing(job) as draft:
        for number, facts in told.items():
            draft.keep(block_name(number), blocks.path(number).stat().st_size, facts["sha256"])
        write_json(draft.path("meta.json"), describe(job, blocks))
        if ids is not None:
            pq.write_table(pa.table({"query_id": pa.array(ids, pa.string())}), draft.path("ids.parquet"))
        draft.facts |= {job.params["side"]: len(rows), "blocks": len(blocks), **made}


def describe(job: Job, blocks: Blocks) -> dict[str, Any]:
    """What a searcher must know about the vectors."""
    model = job.inputs["model"]
    dual = json.loads((require_part(model, "dual") / "dual.json").read_text())
    told = {"rows": blocks.rows, "block": blocks.size, "dtype": blocks.dtype}
    told |= {"side": job.params["side"], "model": model.key}
    return told | {name: dual[name] for name in ("dimension", "pooling", "normalize", "temperature")}
