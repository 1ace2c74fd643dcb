"""Who encodes: a dual encoder's tower and the token ids it reads."""

import numpy as np
import torch

from tandem.artifact import Job
from tandem.data.rows import Rows
from tandem.models.acceleration import accelerate
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import STEP, DualEncoder, encode_all
from tandem.models.hub import check_length
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import Tokens
from tandem.progress import Progress
from tandem.search.blocks import FP16, Vectors
from tandem.search.partners import require_dataset, require_part, require_tokenizer

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
