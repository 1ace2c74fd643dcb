"""Stage `embeddings`, and similar stages of packages: encode passages or a split's queries, in blocks.

Here a row of a block is the vector of a text; packages store other things by a `SideEncoder` of their own. If a text
has several rows, `offsets.npy` holds where they begin and end. It follows only from the token ids, so that it is known
before any block is computed. Shards compute whole blocks; the stage computes those still missing. Memory holds three
blocks: one being read, one computed, one written.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tandem.cluster.progress import Progress, say, warn
from tandem.cluster.work import compute_origin, prefetch_items, write_behind
from tandem.data.collection import Collection
from tandem.data.rows import Rows, index_queries, split_rows
from tandem.models.acceleration import accelerate
from tandem.models.device import describe_kernels, device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.folders import LENGTH_STEP
from tandem.models.hub import check_length
from tandem.models.ragged import Ids, Ragged, round_up
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import FP16, LEAST_KEPT, NEAREST, Blocks
from tandem.retrieval.inputs import (
    list_part_files,
    require_dataset,
    require_part,
    require_prompts,
    require_tokenizer,
)
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.stages.retrieval import EmbeddingsParams, side_encoder
from tandem.store.files import write_json
from tandem.store.job import Job, writing

TOWERS = {"passages": "passage", "queries": "query"}
_NO_TEXTS = range(0)


@side_encoder("text")
class SideEncoder:
    """Run a tower of a dual encoder on the token ids of its side.

    Args:
        texts: rows of the texts to encode; needed only if a text has several rows in the blocks.
        offsets: where each text's rows begin and end, from `find_offsets`.
    Raises:
        UserError: model and token ids do not fit together.
    """

    load = staticmethod(DualEncoder.load)
    blocks: type[Blocks] = Blocks  # the class that stores the vectors
    unit = ""  # what a row is, in words; empty: a text

    def __init__(
        self,
        job: Job[EmbeddingsParams],
        texts: Rows | range = _NO_TEXTS,
        offsets: Ids | None = None,
    ) -> None:
        require_dataset(job, "tokens")
        use_workers(job.execution.workers)
        folder = require_part(job.inputs["model"], "dual")
        self.job = job
        self.texts = texts
        self.offsets = offsets
        self.tokens = job.inputs["tokens"]
        self.model = self.load(folder).to(device()).eval()
        self.tower = TOWERS[job.params.side]
        require_tokenizer(folder / ("shared" if self.model.shared else self.tower), self.tokens)
        require_prompts(self.model.prompts, self.model.options.side_markers, self.tokens)
        self.template = Tokens.open(self.tokens).template
        self.budget = job.params.batch_tokens
        self.mode = resolve_precision(job.params.precision)
        accelerate(self.model, job.execution, self.budget, self.mode, training=False)
        # int8 is quantised from float32
        self.dtype = torch.float16 if job.params.dtype == FP16 else torch.float32
        longest = self.tokens.params[f"{self.tower}_length"] + self.template.extra[0]
        padded = round_up(longest, LENGTH_STEP)
        what = f"{self.tokens.folder}: {self.tower}_length, padded,"
        check_length(self.model.towers[self.tower], padded, what)

    @classmethod
    def find_offsets(cls, job: Job[EmbeddingsParams], texts: Rows | range) -> Ids | None:
        """Return where each text's rows begin and end, shape (texts + 1,); None if each text has one row."""
        return None

    def read(self, rows: Rows | range) -> Ragged:
        """Return the token ids of the texts at `rows`, in memory."""
        return self._open_texts().take(np.asarray(rows))

    def _open_texts(self) -> Ragged:
        # Mapped anew for each block: pages that were read would count as this process' memory until the end.
        tokens = Tokens.open(self.tokens)
        return tokens.queries if self.tower == "query" else tokens.passages

    def count_tokens(self, rows: Rows | range) -> int:
        """Count the tokens that the model reads for the texts at `rows`; 0 if a text has several rows."""
        if self.offsets is not None:
            return 0
        lengths = self._open_texts().lengths(np.asarray(rows))
        return int(lengths.sum()) + len(rows) * self.template.extra[0]

    def encode(self, texts: Ragged, progress: Progress) -> Any:
        """Return the vectors that `blocks` store, shape (texts, dimension): fp16, or float32 for fp32 and int8."""
        vectors = encode_all(
            self.model,
            self.tower,
            texts,
            self.template,
            self.mode,
            self.budget,
            self.dtype,
            count_texts(progress),
        )
        return np.asarray(vectors)


def select(job: Job[EmbeddingsParams]) -> tuple[Rows | range, list[str] | None]:
    """Return the rows of the texts to encode, and their ids if they are queries; passages keep the corpus' order."""
    collection = Collection(job.inputs["dataset"])
    if job.params.side == "passages":
        return range(collection.passages), None
    rows = split_rows(collection, str(job.params.split))
    return rows, index_queries(collection).ids(rows)


def count_texts(progress: Progress) -> Callable[[Ids], None]:
    """Return a function that adds a batch to the progress, from the numbers of tokens of its texts."""
    return lambda lengths: progress.add(len(lengths), tokens=int(lengths.sum()))


class Encoding:
    """Encode the texts of a job in blocks.

    Attributes:
        rows: all rows of the blocks: the texts, or numbers of rows if a text has several.
        offsets: where each text's rows begin and end; None if each text has one.
        blocks: their origin depends on the parameters and on the files that are read.
    """

    def __init__(self, job: Job[EmbeddingsParams]) -> None:
        require_dataset(job, "tokens")
        self.job = job
        self.encoder = side_encoder[KINDS[job.kind].vectors]
        self.texts, self.ids = select(job)
        self.offsets = self.encoder.find_offsets(job, self.texts)
        self.rows = self.texts if self.offsets is None else range(int(self.offsets[-1]))
        files = {role: job.inputs[role].manifest.checksums for role in ("dataset", "tokens")}
        files["model"] = list_part_files(job.inputs["model"], "dual")
        origin = compute_origin(job, files)
        self.blocks = self.encoder.blocks(
            job.out, len(self.rows), job.params.block, origin, job.params.dtype
        )

    def complete(self, numbers: range) -> dict[int, Json]:
        """Compute the blocks among `numbers` that are missing, and return the facts of all of them, in order."""
        job = self.job
        rows = self.rows
        blocks = self.blocks
        facts = blocks.check_finished(numbers, job.key, job.execution.workers or 1)
        missing = [number for number in numbers if number not in facts]
        if missing:
            encoder = self.encoder(job, self.texts, self.offsets)
            computed = {
                "model": job.inputs["model"].key,
                "precision": encoder.mode,
                "device": describe_kernels(encoder.mode),
            }
            texts = ((number, encoder.read(rows[blocks.locate(number)])) for number in missing)

            def write(number: int, vectors: Any) -> None:
                facts[number] = blocks.write(number, vectors, computed)

            done = sum(block["rows"] for block in facts.values())
            total = done + sum(len(rows[blocks.locate(number)]) for number in missing)
            tokens = sum(encoder.count_tokens(rows[blocks.locate(number)]) for number in missing)
            with (
                Progress(
                    f"encode {job.key}",
                    total,
                    encoder.unit or job.params.side,
                    done=done,
                    tokens_ahead=tokens,
                ) as progress,
                write_behind(write) as put,
                prefetch_items(texts) as batches,
            ):
                for number, batch in batches:
                    put(number, encoder.encode(batch, progress))
        return {number: facts[number] for number in numbers}


def run_shard(job: Job[EmbeddingsParams]) -> Json:
    """Compute every n-th block, beginning with this shard's number; return the facts of each."""
    encoding = Encoding(job)
    numbers = range(job.execution.shard or 0, len(encoding.blocks), job.execution.shards)
    return {
        encoding.blocks.name(number): block for number, block in encoding.complete(numbers).items()
    }


def run(job: Job[EmbeddingsParams]) -> None:
    """Compute the blocks that no shard has computed, check every block, and write the manifest."""
    encoding = Encoding(job)
    blocks = encoding.blocks
    facts = encoding.complete(range(len(blocks)))
    blocks.remove_partial()
    computed: dict[str, list[str]] = {}
    for key in ("precision", "device"):
        values = sorted({block[key] for block in facts.values()})
        computed[key] = values
        if len(values) > 1:
            say(
                f"embeddings {job.key}: blocks differ in {key} ({' and '.join(values)}), so their last bits may differ"
            )
    model = job.inputs["model"]
    dual = json.loads((require_part(model, "dual") / "dual.json").read_text())
    meta = {
        "rows": blocks.rows,
        "block": blocks.size,
        "dtype": blocks.dtype,
        "side": job.params.side,
        "model": model.key,
    }
    meta |= {name: dual[name] for name in ("dimension", "pooling", "normalize", "temperature")}
    with writing(job) as draft:
        for number, block in facts.items():
            draft.add(
                blocks.name(number), blocks.locate_file(number).stat().st_size, block["sha256"]
            )
        write_json(draft.path("meta.json"), meta)
        if encoding.offsets is not None:
            np.save(draft.path("offsets.npy"), encoding.offsets)
        if encoding.ids is not None:
            pq.write_table(
                pa.table({"query_id": pa.array(encoding.ids, pa.string())}),
                draft.path("ids.parquet"),
            )
        counts = {job.params.side: len(encoding.texts), "blocks": len(blocks)}
        draft.facts |= {**counts, **computed, **blocks.summarise(facts.values())}
        shares = [block["kept"] for block in facts.values() if block.get("kept") is not None]
        if shares:
            share = round(float(np.mean(shares)), 4)
            draft.facts["kept_by_int8"] = share
            if share < LEAST_KEPT:
                loss = f"int8 keeps {share:.0%} of the {NEAREST} nearest of a sample of passages"
                warn(
                    job,
                    draft,
                    f"{loss}: some numbers are much larger than the rest; encode.dtype: fp16 loses none",
                )
