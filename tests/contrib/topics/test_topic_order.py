"""Epochs whose batches are of one topic, by hand."""

import numpy as np

from tandem.contrib.topics.topic_batches import TopicBatches, order_by_topic
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import Lists


def test_an_epoch_by_topic_by_hand():
    # Topic 1 has the instances 0, 2, 4 and 6, topic 5 has 1, 3 and 5: a full batch of each, 6 and 5 are left
    order, topics = np.array([0, 1, 2, 3, 4, 5, 6]), np.array([1, 5, 1, 5, 1, 5, 1])
    visited = order_by_topic(order, topics, 3, 0, np.random.default_rng(0)).tolist()
    assert sorted([visited[:3], visited[3:6]]) == [[0, 2, 4], [1, 3, 5]]
    assert visited[6:] == [6]
    # Two complete the batch of the epoch before: 6, and one more of a full batch, which is broken up
    visited = order_by_topic(order, topics, 3, 2, np.random.default_rng(0)).tolist()
    assert visited[2:5] in ([0, 2, 4], [1, 3, 5])
    assert sorted(visited) == list(range(7))


def test_batches_of_several_epochs_are_of_one_topic_each():
    queries = np.arange(50)
    lists = Lists(queries, np.arange(0, 101, 2), np.ones(50, int), np.arange(100))
    # five topics of ten, batches of four: two whole ones and two queries left of each
    topics = queries // 10
    seen = list(
        iter_batches(Instances(lists, 2, arrange=TopicBatches(topics)), 4, seed=1, visits=150)
    )
    assert (
        sorted(np.concatenate([batch.queries for batch in seen]).tolist())
        == np.repeat(queries, 3).tolist()
    )
    alike = [len(set(topics[batch.queries])) == 1 for batch in seen]
    assert sum(alike) >= 3 * 9
    again = list(
        iter_batches(
            Instances(lists, 2, arrange=TopicBatches(topics)), 4, seed=1, visits=150, first=20
        )
    )
    assert [batch.queries.tolist() for batch in again] == [
        batch.queries.tolist() for batch in seen[20:]
    ]
    plain = list(iter_batches(Instances(lists, 2), 4, seed=1, visits=150))
    assert sum(len(set(topics[batch.queries])) == 1 for batch in plain) < 5
