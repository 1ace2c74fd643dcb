"""Stage `embeddings`: vectors of the passages, or of a split's queries, by a dual encoder, in blocks of a fixed size.

Shards compute whole blocks, the stage those still missing. Memory is that of three blocks: read, computed, written.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tandem.cluster.background import ahead, behind
from tandem.cluster.parts import origin
from tandem.cluster.progress import Progress, say, warn
from tandem.data.collection import Collection
from tandem.data.rows import Rows, query_rows, split_rows
from tandem.models.acceleration import accelerate
from tandem.models.device import device, kernels, resolve_precision, use_workers
from tandem.models.dual import STEP, DualEncoder, encode_all
from tandem.models.hub import check_length
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import FP16, LEAST_KEPT, NEAREST, Blocks
from tandem.retrieval.inputs import part_files, require_dataset, require_part, require_prompts, require_tokenizer
from tandem.stages.base import Json
from tandem.stages.retrieval import EmbeddingsParams
from tandem.store.files import write_json
from tandem.store.job import Job, writing

TOWERS = {"passages": "passage", "queries": "query"}


class Encoder:
    """A dual encoder's tower with the token ids it reads; a `UserError` where they do not fit together."""

    load = staticmethod(DualEncoder.load)
    blocks: type[Blocks] = Blocks  # what is stored
    unit = ""  # what a row is; empty: a text

    def __init__(self, job: Job[EmbeddingsParams]) -> None:
        require_dataset(job, "tokens")
        use_workers(job.execution.workers)
        self.tokens, folder = job.inputs["tokens"], require_part(job.inputs["model"], "dual")
        self.model = self.load(folder).to(device()).eval()
        self.tower = TOWERS[job.params.side]
        require_tokenizer(folder / ("shared" if self.model.shared else self.tower), self.tokens)
        require_prompts(self.model.prompts, self.tokens)
        self.template = Tokens.open(self.tokens).template
        self.budget = job.params.batch_tokens
        self.mode = resolve_precision(job.params.precision)
        accelerate(self.model, job.execution, self.budget, self.mode, training=False)
        self.dtype = torch.float16 if job.params.dtype == FP16 else torch.float32  # also what int8 is quantised from
        longest = self.tokens.params[f"{self.tower}_length"] + self.template.extra[0]
        padded, what = -(-longest // STEP) * STEP, f"{self.tokens.folder}: {self.tower}_length, padded,"
        check_length(self.model.towers[self.tower], padded, what)

    def read(self, rows: Rows | range) -> Ragged:
        """Token ids of the texts at `rows`, in memory."""
        tokens = Tokens.open(self.tokens)  # mapped anew: what was read for one block would count as memory to the end
        texts = tokens.queries if self.tower == "query" else tokens.passages
        return texts.take(np.asarray(rows))

    def encode(self, texts: Ragged, progress: Progress) -> Any:
        """What `blocks` store: vectors of texts, shape (texts, dimension), fp16, or float32 for fp32 and int8."""

        def count(lengths: Ids) -> None:
            progress.add(len(lengths), tokens=int(lengths.sum()))

        options = self.template, self.mode, self.budget, self.dtype
        return np.asarray(encode_all(self.model, self.tower, texts, *options, count))


def select(job: Job[EmbeddingsParams]) -> tuple[Rows | range, list[str] | None]:
    """The rows to encode, in order, and the ids of queries (None for passages, which keep the corpus' order)."""
    collection = Collection(job.inputs["dataset"])
    if job.params.side == "passages":
        return range(collection.passages), None
    rows = split_rows(collection, str(job.params.split))
    return rows, query_rows(collection).ids(rows)


def open_blocks(job: Job[EmbeddingsParams], rows: Rows | range, kind: type[Blocks] = Blocks) -> Blocks:
    """The blocks that `rows` are encoded in; their origin covers the parameters and the very files that are read."""
    files = {role: job.inputs[role].manifest.checksums for role in ("dataset", "tokens")}
    files["model"] = part_files(job.inputs["model"], "dual")
    return kind(job.out, len(rows), job.params.block, origin(job, files), job.params.dtype)


def encode_blocks(
    job: Job[EmbeddingsParams], rows: Rows | range, blocks: Blocks, numbers: range, kind: type[Encoder] = Encoder
) -> dict[int, Json]:
    """Compute the blocks that are still missing among `numbers`; the facts of each of them, in order."""
    facts = blocks.finished(numbers, job.key, job.execution.workers or 1)
    missing = [number for number in numbers if number not in facts]
    if missing:
        encoder = kind(job)
        computed = {"model": job.inputs["model"].key, "precision": encoder.mode, "device": kernels()}
        texts = ((number, encoder.read(rows[blocks.span(number)])) for number in missing)

        def write(number: int, vectors: Any) -> None:
            facts[number] = blocks.write(number, vectors, computed)

        done = sum(block["rows"] for block in facts.values())
        total = done + sum(len(rows[blocks.span(number)]) for number in missing)
        with (
            Progress(f"encode {job.key}", total, kind.unit or job.params.side, done=done) as progress,
            behind(write) as put,
            ahead(texts) as batches,
        ):
            for number, batch in batches:
                put(number, encoder.encode(batch, progress))
    return {number: facts[number] for number in numbers}


def run_shard(
    job: Job[EmbeddingsParams], kind: type[Encoder] = Encoder, rows: Rows | range | None = None
) -> dict[str, object]:
    """Compute every n-th block, beginning with this shard's number; facts by block. Arguments are those of `run`."""
    rows = select(job)[0] if rows is None else rows
    blocks = open_blocks(job, rows, kind.blocks)
    numbers = range(job.execution.shard or 0, len(blocks), job.execution.shards)
    facts = encode_blocks(job, rows, blocks, numbers, kind)
    return {blocks.name(number): block for number, block in facts.items()}


def run(
    job: Job[EmbeddingsParams],
    kind: type[Encoder] = Encoder,
    rows: Rows | range | None = None,
    offsets: Ids | None = None,
) -> None:
    """Compute the blocks that no shard has computed, check every block, and write the manifest.

    Args:
        kind: the class that computes them.
        rows: what the encoder reads, a row of a block each; None: the texts that `select` names.
        offsets: where each text's rows begin and end, shape (texts + 1,), to be written beside the blocks; None: a text
            is a row.
    """
    require_dataset(job, "tokens")
    texts, ids = select(job)
    rows = texts if rows is None else rows
    blocks = open_blocks(job, rows, kind.blocks)
    facts = encode_blocks(job, rows, blocks, range(len(blocks)), kind)
    blocks.tidy()
    computed = {key: sorted({block[key] for block in facts.values()}) for key in ("precision", "device")}
    for key, values in computed.items():
        if len(values) > 1:
            say(f"embeddings {job.key}: blocks differ in {key} ({' and '.join(values)}), so their last bits may differ")
    model = job.inputs["model"]
    dual = json.loads((require_part(model, "dual") / "dual.json").read_text())
    meta = {"rows": len(rows), "block": blocks.size, "dtype": blocks.dtype, "side": job.params.side, "model": model.key}
    meta |= {name: dual[name] for name in ("dimension", "pooling", "normalize", "temperature")}
    with writing(job) as draft:
        for number, block in facts.items():
            draft.add(blocks.name(number), blocks.path(number).stat().st_size, block["sha256"])
        write_json(draft.path("meta.json"), meta)
        if offsets is not None:
            np.save(draft.path("offsets.npy"), offsets)
        if ids is not None:
            pq.write_table(pa.table({"query_id": pa.array(ids, pa.string())}), draft.path("ids.parquet"))
        counts = {job.params.side: len(texts), "blocks": len(blocks)}
        draft.facts |= {**counts, **computed, **blocks.summary(facts.values())}
        if kept := [block["kept"] for block in facts.values() if block.get("kept") is not None]:
            draft.facts["kept_by_int8"] = share = round(float(np.mean(kept)), 4)
            if share < LEAST_KEPT:
                loss = f"int8 keeps {share:.0%} of the {NEAREST} nearest of a sample of passages"
                warn(job, draft, f"{loss}: some numbers are much larger than the rest; encode.dtype: fp16 loses none")
