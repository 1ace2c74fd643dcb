"""Encode texts to weights of terms, for the stage `term_weights`."""

from scipy.sparse import csr_array

from tandem.cluster.progress import Progress
from tandem.contrib.term_weights.splade import LOGITS, join_sparse_rows
from tandem.contrib.term_weights.term_search import SparseBlocks
from tandem.models.dual import encode_batches, load_dual
from tandem.models.ragged import Ragged
from tandem.retrieval.encode import SideEncoder, count_texts
from tandem.stages.retrieval import side_encoder


@side_encoder("term")
class TermEncoder(SideEncoder):
    """Run a sparse encoder's tower on token ids."""

    load = staticmethod(load_dual)
    blocks = SparseBlocks

    def encode(self, texts: Ragged, progress: Progress) -> csr_array:
        """Return weights of texts, shape (texts, vocabulary), rounded to the type that is stored."""
        budget = max(1, min(self.budget, LOGITS // self.model.dimension))
        batches = encode_batches(
            self.model, self.tower, texts, self.template, self.mode, budget, count_texts(progress)
        )
        return join_sparse_rows(
            batches, self.model.dimension, self.dtype, str(self.job.inputs["model"].folder)
        )
