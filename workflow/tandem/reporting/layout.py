"""A table's layout: which systems are its rows, which measures its columns, and what the paper prints.

Files are config/papers/<paper>/<table>.yaml; `assets/layout.schema.json` lists their keys. What a paper prints
stands in printed.csv beside the layouts, and is looked up by the names in print.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

System = tuple[str, str]  # (system, first stage); the first stage is empty where nothing is re-ranked


@dataclass(frozen=True)
class Column:
    """A measure.

    Attributes:
        measure: by its ir_measures name.
        name: as the paper prints it.
        dataset: of the catalogue, where the paper searches; empty for the layout's own (`printed_on`).
        dataset_name: that dataset as the paper names it.
        split: the paper's.
        setting: as printed.csv has it, where the paper prints the measure in several.
        printed: whether the paper prints it.
    """

    measure: str
    name: str
    dataset: str = ""
    dataset_name: str = ""
    split: str = ""
    setting: str = ""
    printed: bool = True

    @property
    def id(self) -> str:
        """What tells a column from every other: `RR@10`, `natural-questions RR@10`."""
        return f"{self.dataset} {self.measure}".strip()

    @property
    def label(self) -> str:
        """The name as printed and as ir-measures has it: `MRR@10 (RR@10)`, with its dataset where there are several."""
        both = self.name if self.name == self.measure else f"{self.name} ({self.measure})"
        where = ", ".join(filter(None, (self.dataset_name, self.setting)))
        return f"{where}: {both}" if where else both


@dataclass(frozen=True)
class LayoutRow:
    """A system.

    Attributes:
        system: as the paper names it.
        first_stage: whose list it re-ranks; empty for a first stage.
        run: the expression that names its run: `bm25`, `<model>`, `<first stage>+<cross-encoder>`.
        printed: the paper's value in percent by column; absent or None where it prints none.
        baseline: what it is tested against; None for a row that is nobody's challenger.
        hidden: present only as a baseline of other rows.
        labels: `corrected` scores by the qrels of the audit of false negatives; empty by the dataset's own.
        variant: `dissimilar` trains without the queries that are similar to others; empty on the dataset as it is.
        changes: `with` of the file, what the configuration says otherwise for this row: dotted path → value.
        changes_own: the same, `with_own`: only where the paper's own dataset is searched.
        dataset: where it is searched, as the catalogue names it; empty: the layout's or the column's.
        columns: the datasets of the columns that it fills; empty: of all.
        quoted: only quoted: it has no run.
        wrong: by column, why a printed value is known to be wrong.
    """

    system: str
    first_stage: str
    run: str
    printed: dict[str, float | None]
    baseline: System | None
    hidden: bool
    labels: str = ""
    variant: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    changes_own: dict[str, Any] = field(default_factory=dict)
    dataset: str = ""
    columns: tuple[str, ...] = ()
    quoted: bool = False
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> System:
        """What tells a row from every other."""
        return self.system, self.first_stage


@dataclass(frozen=True)
class Layout:
    """A table before it has numbers; `paper` and `printed_on` are None where no paper prints it.

    Without `columns` it shows every measure of its scores. `subset` is `similar` where only the queries count that have
    a similar one among the training queries, `pooled` for those that the audit of false negatives looked at. `recipes`
    are what its models need beside the configuration's; `same` are further datasets that are a collection of the
    paper's; `configs` are the files that say how models are trained for one of the paper's datasets.
    """

    title: str
    paper: dict[str, str] | None
    printed_on: dict[str, str] | None
    decimals: int
    note: str
    columns: list[Column]
    rows: list[LayoutRow]
    subset: str = ""
    recipes: tuple[str, ...] = ()
    same: dict[str, list[str]] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def datasets(self) -> list[str]:
        """The datasets of the catalogue that it names, the paper's own first."""
        own = [self.printed_on["dataset"]] if self.printed_on else []
        named = [*own, *(one.dataset for one in self.columns), *(row.dataset for row in self.rows)]
        trained = [v for row in self.rows for path, v in row.changes.items() if names_dataset(path) and v]
        return list(dict.fromkeys(name for name in [*named, *trained] if name))


def names_dataset(path: str) -> bool:
    """Whether a dotted path of the configuration holds the name of a dataset."""
    return path.rpartition(".")[2] in ("dataset", "train_on")


def beside(path: Path, name: str) -> Path | None:
    """A file that layouts share: in a layout's folder, or in the one above."""
    return next((file for file in (path.parent / name, path.parent.parent / name) if file.is_file()), None)


def name(system: System) -> str:
    """`CE w/ DE Neg on BM25`, or the system alone."""
    return f"{system[0]} on {system[1]}" if system[1] else system[0]
