"""Self-teaching: a dual encoder learns to rank for a broken query as it does for the original query."""

import numpy as np
import torch
from torch import Tensor

from tandem.config.training import DualTrain
from tandem.contrib.robustness.perturbation import name_copy
from tandem.data.collection import Collection
from tandem.data.rows import index_queries
from tandem.models.ragged import Ids
from tandem.stages.training import ModelParams
from tandem.store.job import Job
from tandem.training.forward import Seeds, score_own_lists
from tandem.training.lists import Batch
from tandem.training.losses.listwise import compute_divergence
from tandem.training.objectives import make_mask
from tandem.training.objectives.dual import DualObjective


class BrokenQueries:
    """The broken copies of queries from which self-teaching learns; one is drawn at each visit.

    Args:
        rows: the rows of each query's copies, one for each kind, -1 if it has none; shape (queries, kinds).
    """

    def __init__(self, rows: Ids) -> None:
        self.rows = rows

    def draw(self, queries: Ids, seeds: Seeds) -> Ids:
        """Return the row of a broken copy of each query, the same in every process; shape (queries,)."""
        copies = self.rows[queries]
        if (copies < 0).any():
            raise ValueError("a query that is trained on has no broken copy")
        kinds = np.empty((len(queries), 1), np.int64)
        for number, row in enumerate(queries.tolist()):
            kinds[number] = np.random.default_rng((*seeds.entropy, row)).integers(copies.shape[1])
        return np.take_along_axis(copies, kinds, axis=1)[:, 0]

    def compare(
        self,
        objective: DualObjective,
        copies: Tensor,
        queries: Tensor,
        everyone: Tensor,
        passages: Tensor,
        own: Batch,
    ) -> Tensor:
        """weight · KL(softmax(s(q, ·) / T) ‖ softmax(s(q', ·))) for a broken copy q' of q, summed over queries.

        Self-teaching (Zhuang and Zuccon 2022): the query's scores are the teacher's and have no gradient. The passages
        are those of the whole batch with `in_batch`, else the query's own list.
        """
        params = objective.train.self_teaching
        assert params is not None
        scores = objective.model.scores
        if objective.train.in_batch:
            clean = scores(queries, everyone)
            student = scores(copies, everyone)
            mask = torch.ones_like(student, dtype=torch.bool)
        else:
            clean = score_own_lists(scores, queries, passages, own)
            student = score_own_lists(scores, copies, passages, own)
            mask = make_mask(own, student)
        teacher = clean.detach() / params.temperature
        return params.weight * compute_divergence(teacher, student, mask).sum()


def find_broken_queries(job: Job[ModelParams], train: DualTrain) -> BrokenQueries:
    """Return the rows of the broken copies of the training queries."""
    assert train.self_teaching is not None
    collection = Collection(job.inputs["dataset"])
    queries = index_queries(collection)
    names = list(collection.queries("train"))
    kinds = train.self_teaching.kinds
    rows = np.full((len(queries), len(kinds)), -1, np.int64)
    own = queries.rows(names)
    for column, kind in enumerate(kinds):
        rows[own, column] = queries.rows([name_copy(kind, name) for name in names])
    return BrokenQueries(rows)
