"""Stage `term_weights`: the weights that a sparse encoder gives to the terms of passages, or of a split's queries."""

from scipy.sparse import csr_array

from tandem.cluster.progress import Progress
from tandem.models.dual import encode_batches, load_dual
from tandem.models.ragged import Ids, Ragged
from tandem.models.sparse import LOGITS, sparse_rows
from tandem.retrieval import encode
from tandem.retrieval.term_weights import SparseBlocks
from tandem.stages.retrieval import EmbeddingsParams
from tandem.store.job import Job


class TermEncoder(encode.Encoder):
    """A sparse encoder's tower with the token ids it reads."""

    load = staticmethod(load_dual)
    blocks = SparseBlocks

    def encode(self, texts: Ragged, progress: Progress) -> csr_array:
        """Weights of texts, shape (texts, vocabulary), rounded to what is stored."""

        def count(lengths: Ids) -> None:
            progress.add(len(lengths), tokens=int(lengths.sum()))

        budget = max(1, min(self.budget, LOGITS // self.model.dimension))
        batches = encode_batches(self.model, self.tower, texts, self.template, self.mode, budget, count)
        return sparse_rows(batches, self.model.dimension, self.dtype)


def run_shard(job: Job[EmbeddingsParams]) -> dict[str, object]:
    """Compute every n-th block, as of the stage `embeddings`."""
    return encode.run_shard(job, TermEncoder)


def run(job: Job[EmbeddingsParams]) -> None:
    """Compute the blocks that no shard has computed, check every block, and write the manifest."""
    encode.run(job, TermEncoder)
