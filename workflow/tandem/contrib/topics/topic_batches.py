"""Arrange epochs in batches with queries of one topic."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from tandem.data.rows import IdRows
from tandem.models.ragged import Ids
from tandem.stages.training import ModelParams
from tandem.store.job import Job
from tandem.training.instances import Instances


@dataclass(frozen=True)
class TopicBatches:
    """Arrange an epoch by topic; `topics` contains the topic of each query row, -1 for queries of other splits."""

    topics: Ids

    def __call__(
        self, instances: Instances, order: Ids, per_batch: int, seed: int, epoch: int
    ) -> Ids:
        """Return the instances in an order in which each batch has one topic."""
        indices = np.searchsorted(instances.bounds, order, side="right") - 1
        topics = self.topics[instances.lists.queries[indices]]
        # Batches continue across the end of an epoch: this many instances complete the last batch of the epoch before.
        begun = -epoch * len(instances) % per_batch
        rng = np.random.default_rng([seed, 4, epoch])
        return order_by_topic(order, topics, per_batch, begun, rng)


def arrange_by_topic(job: Job[ModelParams], queries: IdRows) -> TopicBatches:
    """Return the arrangement by the input `topics`."""
    table = pq.read_table(job.inputs["topics"].path("topics.parquet"))
    topics = np.full(len(queries), -1, np.int32)
    topics[queries.rows(table["query_id"].to_pylist())] = table["topic"].to_numpy()
    return TopicBatches(topics)


def order_by_topic(
    order: Ids, topics: Ids, per_batch: int, begun: int, rng: np.random.Generator
) -> Ids:
    """Return an epoch's order in which each batch has one topic: topic-aware sampling (Hofstätter et al. 2021).

    The paper draws a topic for each batch; here, every instance is still visited once per epoch. Instances that do not
    fill a batch of their topic are put into batches of several topics with neighbouring numbers.

    Args:
        order: the instances in random order.
        topics: the topic of each instance, same shape.
        begun: number of instances that complete the last batch of the epoch before.
        rng: shuffles the batches.
    """
    sizes = np.unique(topics, return_counts=True)[1]
    groups = np.split(order[np.argsort(topics, kind="stable")], np.cumsum(sizes)[:-1])
    in_full_batches = []
    left_over = []
    for group in groups:
        cut = len(group) // per_batch * per_batch
        in_full_batches.append(group[:cut])
        left_over.append(group[cut:])
    full = np.concatenate(in_full_batches).reshape(-1, per_batch)
    rest = np.concatenate(left_over)
    full = full[rng.permutation(len(full))]
    # if too few instances are left to complete the last epoch's batch, one more batch is broken up for it
    if len(rest) < begun and len(full):
        rest = np.concatenate([full[-1], rest])
        full = full[:-1]
    return np.concatenate([rest[:begun], full.ravel(), rest[begun:]])
