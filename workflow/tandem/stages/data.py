"""Collections and the runs that come with them: datasets, their own training lists as runs, and released runs."""

from operator import not_
from typing import Literal

from pydantic import ConfigDict, Field

from tandem.config.datasets import Dataset, sources
from tandem.config.retrieval import Ties
from tandem.stages.base import Kind, Params, Part, Planned


class DatasetParams(Params):
    """Parameters of every dataset. The others are those of its source, which validates them by a model of its own."""

    model_config = ConfigDict(extra="allow", strict=True)

    source: str = Field("files", description="the format, or how the dataset is derived from others")
    title: bool = Field(True, description="false blanks titles")
    train_queries: int | None = Field(None, ge=1, description="most training queries, chosen by a hash; null: all")
    dev_queries: int | None = Field(None, ge=1, description="most dev queries, likewise")
    test_queries: int | None = Field(None, ge=1, description="most test queries, likewise")
    dev_from_train: float | None = Field(None, gt=0, lt=1, description="share of train queries that become dev")
    dev_from_train_most: int | None = Field(None, ge=1, exclude_if=not_, description="at most this many of them")
    train_from_test: float | None = Field(None, gt=0, lt=1, description="share of test queries that become train")
    near_duplicates: float | None = Field(None, gt=0, le=1, description="similarity from which labels are shared")
    unknown_documents: Literal["warn", "drop", "error"] = Field("warn", description="labels of absent passages")
    blank_queries: Literal["drop", "error"] = Field("drop", description="queries without text: dropped or refused")
    checksum: str | None = Field(None, description="expected sha256 of the source's rows; another one is a warning")
    fingerprint: str | None = Field(None, description="of the files that `path` names")
    downloads: list[list[str | None]] | None = Field(None, description="(file, url, member, sha256, md5) each")

    def most_queries(self, split: str) -> int | None:
        """The largest number of queries of a split; None for all."""
        limits = {"train": self.train_queries, "dev": self.dev_queries, "test": self.test_queries}
        return limits.get(split)


class GivenParams(Params):
    """Parameters of the run that a dataset's own training lists are."""

    split: str = Field("train", description="whose queries")
    depth: int = Field(1000, ge=1, description="most negatives of a query")


class ImportedParams(Params):
    """Parameters of a released run."""

    format: Literal["trec", "ranks", "margin_mse"] = Field("trec", description="of the file")
    ties: Ties = Field("doc_id", description="which of tied passages is first")
    split: str = Field("test", description="whose queries")
    depth: int = Field(1000, ge=1, description="passages kept of a query")
    fingerprint: str | None = Field(None, description="of the file")


def _is_read_by_several(stage: Planned) -> bool:
    least = sources().get(stage.values["source"], Dataset).shared_from
    return least is not None and (stage.execution.get("counts") or {}).get("passages", 0) >= least


# A shard of `dataset` that fails does so of a line in a file, mostly, and would again.
KINDS = (
    Kind("dataset", "data.dataset:run", DatasetParams, threads="all", shard="data.dataset:run_shard",
        shard_retries=0, shard_if=_is_read_by_several, part=Part(1 << 20, "passages"), box="Collection"),
    Kind("given", "data.imported:run_given", GivenParams, version=2, box="Collection"),
    Kind("imported", "data.imported:run_imported", ImportedParams, version=2, box="Collection"),
)  # fmt: skip
