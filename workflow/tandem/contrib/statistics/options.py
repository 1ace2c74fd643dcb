"""The layouts of tables of datasets."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from tandem.config.base import Items, Section, not_empty


class StatisticsPaper(Section):
    """The paper of a statistics table."""

    citation: str = Field(description="authors, title, year")
    source: str = Field(description="the paper in printed.csv")
    tables: Items[str] = Field(min_length=1, description="its tables in printed.csv")


class Quantity(Section):
    """A quantity that is counted."""

    split: str = Field(description="the split that is counted; all: the passages")
    quantity: str = Field(description="queries, labels, passages, …")


class CountedDataset(Section):
    """The datasets to which a printed name refers; none if the catalogue has none."""

    datasets: Items[str] = Field((), description="their counts are added up")
    splits: dict[str, str] = Field(
        {}, description="printed split → the dataset's, where they differ"
    )


class SplitDataset(Section):
    """A dataset whose splits are printed under other names."""

    dataset: str = Field(description="name in the catalogue")
    splits: dict[str, str] = Field(
        {}, description="printed split → the dataset's, where they differ"
    )


def _counted(value: Any) -> Any:
    match value:
        case None:
            return {}
        case str():
            return {"datasets": [value]}
        case list():
            return {"datasets": value}
        case {"dataset": name, **rest}:
            return {"datasets": [name], **rest}
    return value


_counts = BeforeValidator(_counted, json_schema_input_type=str | list[str] | SplitDataset | None)
CountedDatasets = Annotated[
    dict[str, Annotated[CountedDataset, _counts]], AfterValidator(not_empty)
]


class StatisticsLayout(Section):
    """A statistics table's layout: config/statistics/<paper>_<table>.yaml."""

    title: str = Field(description="heading")
    note: str = Field("", description="text below the table")
    paper: StatisticsPaper = Field(description="the paper that prints it")
    quantities: Items[Quantity] = Field((), description="shown even if they are not printed")
    datasets: CountedDatasets = Field(
        description="printed name → dataset, datasets, {dataset, splits}, or null: none"
    )
