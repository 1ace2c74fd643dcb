"""Training lists as tests read them."""

import pyarrow.parquet as pq

from tandem.data.columns import DatasetNames
from tandem.store.artifact import open_artifact
from tandem.training.lists import add_ids


def listed_rows(lists):
    """The lines of a `candidates` artifact, with the ids of their queries and passages."""
    project = lists.folder.parents[3]  # folders of a graph are relative to it
    names = DatasetNames(open_artifact(project / lists.upstream["dataset"]))
    return add_ids(pq.read_table(lists.path("candidates.parquet")), names).to_pylist()
