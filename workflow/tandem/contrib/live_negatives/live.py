"""Train only the query's tower, against the passages that it retrieves at every step (ADORE)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tandem.cluster.progress import Progress
from tandem.config.training import DualTrain
from tandem.data.rows import PassageOrder
from tandem.errors import UserError
from tandem.models.device import place_array
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import FP16, FP32, Embeddings, FloatVectors, Stretches
from tandem.retrieval.exact import unpack_keys
from tandem.retrieval.retrieve import open_search_engine
from tandem.stages.training import ModelParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job
from tandem.training.distributed import World
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import ListLoss, apply_gradient, make_mask
from tandem.training.objectives.dual import DualObjective

_ENGINE = "torch"  # a process that trains holds no FAISS
_USUAL_MEMORY = 2048  # MiB that a search may take


class FrozenPassages:
    """Search the passages of a dataset by their stored vectors, which no step of the training changes.

    Args:
        vectors: the artifact of the passages' vectors, computed by the model from which the training starts.
        dataset: the passages' dataset, which determines the order of passages with the same score.
        memory: MiB that a search may take; None: 2048.
        workers: threads; None: all.
    """

    def __init__(
        self, vectors: Artifact, dataset: Artifact, memory: float | None, workers: int | None
    ) -> None:
        self.embeddings = Embeddings(vectors, "passages")
        self.order = PassageOrder(dataset)
        self.memory = int((memory or _USUAL_MEMORY) * (1 << 20))
        self.workers = workers
        self.engine = open_search_engine(_ENGINE)

    def retrieve(self, queries: Tensor, depth: int) -> Ids:
        """Return the rows of the passages with the highest scores, best first, shape (queries, depth).

        If there are fewer than `depth` passages, all are returned. Queries are rounded as stored vectors are.
        """
        depth = min(depth, self.embeddings.rows)
        if not len(queries):  # a process without a share of a small batch
            return np.empty((0, depth), np.int64)
        dtype = np.float32 if self.embeddings.dtype == FP32 else np.float16
        rounded: FloatVectors = queries.detach().float().cpu().numpy().astype(dtype)
        if not np.isfinite(rounded).all():
            raise UserError(
                f"a query's vector holds a number that {FP16} has not; train with normalize: true"
            )
        every = range(len(self.embeddings))
        with Progress("search", self.embeddings.rows, "passages", quiet=True) as progress:
            stretches = Stretches(self.embeddings, every, self.order.ranks, progress)
            keys = self.engine.search(rounded, stretches, depth, self.memory, self.workers)
        _, ranks = unpack_keys(keys)
        return self.order.by_rank[ranks].astype(np.int64)

    def take(self, rows: Ids) -> Tensor:
        """Return the vectors of passages in float32, shape (*rows.shape, dim)."""
        vectors = self.embeddings.pick(rows.ravel()).astype(np.float32)
        return place_array(vectors).reshape(*rows.shape, self.embeddings.dimension)


def start_live(
    job: Job[ModelParams],
    model: DualEncoder,
    tokens: Tokens,
    train: DualTrain,
    positives: Positives,
    budget: Budget,
    world: World,
) -> "Live":
    """Return the objective of a training, whose two towers are separate; it retrieves from the input `passages`."""
    assert train.live_negatives is not None
    model.untie()
    passages = FrozenPassages(
        job.inputs["passages"],
        job.inputs["dataset"],
        job.execution.search_memory,
        job.execution.workers,
    )
    return Live(
        model,
        tokens,
        train,
        positives,
        budget,
        world,
        passages=passages,
        depth=train.live_negatives,
    )


@dataclass(eq=False, kw_only=True)
class Live(DualObjective):
    """Compute the list loss of each query's positives and of what the model retrieves for it at this very step.

    ADORE (Zhan et al. 2021 §4.2): the passages' vectors are frozen, and so are exact at every step, however much the
    query's tower has changed. Known positives among the retrieved passages are not negatives. The training lists only
    give the positives. `train.loss` is any loss of lists; the paper's is `lambda_mrr`. `depth` passages are retrieved.
    """

    passages: FrozenPassages
    depth: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.shared:
            raise ValueError("live negatives train the query's tower alone: untie the towers first")
        self.list_loss = ListLoss(self.train)
        for part in (self.model.towers["passage"], self.model.dense["passage"]):
            part.requires_grad_(False)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""
        own = self.world.share(batch)
        encoded = self.vectors.encode_side("query", own.queries, seeds.child(0))
        queries = encoded.values()
        lists = self.retrieved(queries, own)
        passages = self.passages.take(np.maximum(lists.passages, 0))
        scores = dot_scores(queries, passages, self.model.temperature)
        mask = make_mask(lists, scores)
        values = apply_gradient(self.list_loss(scores, mask, scores, lists), len(batch.queries))
        encoded.backward()
        return values

    def retrieved(self, queries: Tensor, batch: Batch) -> Batch:
        """Return the batch's positives, each list followed by the best of the passages that are not known positives.

        Args:
            queries: vectors of the batch's queries, shape (queries, dim).
        """
        found = self.passages.retrieve(queries, self.depth)
        distinct, place_of = np.unique(found, return_inverse=True)
        known = self.positives.mask_known(batch.queries, distinct)
        is_positive = np.take_along_axis(known, place_of.reshape(found.shape), axis=1)
        negatives = np.where(is_positive, -1, found)

        most = int(batch.positives.max(initial=1)) if batch.positives is not None else 1
        positives = batch.passages[:, :most].astype(np.int64)
        if batch.positives is not None:  # a list with fewer positives has its first negative there
            positives = np.where(np.arange(most) < batch.positives[:, None], positives, -1)
        return Batch(
            batch.queries, np.concatenate([positives, negatives], 1), positives=batch.positives
        )
