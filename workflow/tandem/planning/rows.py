"""A table's rows as stages: which configuration plans each, on which dataset, with which seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.errors import Unavailable, UserError
from tandem.evaluation.layouts import Layout, LayoutRow, load_layout
from tandem.planning.config import read_yaml
from tandem.planning.graph import Stage
from tandem.planning.runs import NO_QRELS, cutoff
from tandem.planning.stand_ins import StandIns
from tandem.planning.variants import Variants

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

Row = dict[str, str]
NOT_TAKEN = ("tables", "systems", "sweeps", "execution", "audits")  # of a configuration file that a layout names


class Rows:
    """The rows of one configuration's tables.

    Args:
        own: the configuration's resolver.
        variants: those of the same configuration.
    """

    def __init__(self, own: "Resolver", variants: Variants) -> None:
        self.own, self.variants, self.config = own, variants, own.config
        self.seeds: list[int] = self.config["seeds"] or [self.config["seed"]]
        self.absent: dict[Path, list[Row]] = {}
        self.layouts: dict[Path, Layout] = {}

    def of(self, file: Path) -> list[tuple[Row, Stage]]:
        """The scores of a layout's rows: one for each of its datasets and seeds; quoted rows have none.

        A row says what `tandem table` must know: system and first stage; dataset and split where it is scored, and the
        collection that this is; the layout's dataset whose columns it fills; the seed; the key of its run; which
        datasets stand in where it is trained. What a dataset lacks for a printed row is noted in `absent`.

        Raises:
            UserError: a measure, model, split or dataset that the configuration does not have.
        """
        layout, measured = load_layout(file), self.config["score"]["measures"]
        self.layouts[file] = layout
        for column in layout.columns if measured else ():
            if column.measure not in measured:
                raise UserError(f"{file}: shows {column.measure}; add it to score.measures ({', '.join(measured)})")
        groups = dict.fromkeys(column.dataset for column in layout.columns) or {"": None}
        rows = [row for row in layout.rows if not row.quoted]
        made: list[tuple[Row, Stage]] = []
        missing: dict[str, None] = {}
        self.absent[file] = []
        for row in rows:
            for group in (group for group in groups if group in row.columns or not row.columns):
                try:
                    made += [self._scored(file, layout, row, group, seed) for seed in self.seeds]
                except Unavailable as error:
                    if not row.hidden and all(value is None for value in row.printed.values()):
                        raise
                    missing[str(error)] = None
                    named = {"system": row.system, "first_stage": row.first_stage}
                    self.absent[file].append({**named, "column": group, "absent": str(error)})
        if not made:
            raise Unavailable("; ".join(missing) or f"{file}: all rows are quoted; a table needs one with a run")
        return made

    def _scored(self, file: Path, layout: Layout, row: LayoutRow, group: str, seed: int) -> tuple[Row, Stage]:
        """A row's score for the columns of one dataset, with one seed."""
        stand_ins = StandIns(self.config, layout)
        named = row.dataset or group or (layout.printed_on.dataset if layout.printed_on else "")
        dataset, changes = stand_ins.searched(named), self._configured(layout, stand_ins, named)
        told = stand_ins.changed(row.changes)
        dataset = changes.get("dataset", dataset)
        if dataset != self.config["dataset"]:
            changes["dataset"] = dataset
        changes |= told | (row.changes_own if stand_ins.collection(dataset) == named else {})
        recipes: list[str] = changes.get("recipes") or self.config["recipes"]
        if lacking := [name for name in layout.recipes if name not in recipes]:
            changes["recipes"] = [*recipes, *lacking]
        if seed != self.config["seed"]:
            changes["seed"] = seed
        of = self.variants.resolver(changes) if changes else self.own
        try:
            of = self._trained_on_variant(of, changes, dataset, row.variant) if row.variant else of
            stage = _score(of, row, layout, str(file), dataset)
        finally:
            of.opened.clear()  # a row that cannot be had leaves its models half planned
        run = stage.upstream.get("run")
        instead = [
            f"{told[at]} for {value}" for at, value in row.changes.items() if stand_ins.collection(told[at]) != value
        ]
        return {
            "system": row.system,
            "first_stage": row.first_stage,
            "dataset": dataset,
            "split": of.runs.split(dataset),
            "collection": StandIns(of.config, layout).collection(dataset),
            "column": group,
            "seed": str(seed),
            "run": run.key if run else "",
            "instead": ", ".join(instead),
        }, stage

    def _configured(self, layout: Layout, stand_ins: StandIns, named: str) -> dict[str, Any]:
        """What the layout's own configuration for a dataset changes, where another is configured."""
        if named not in layout.configs or stand_ins.searched(named) != named or named == self.config["dataset"]:
            return {}
        told: dict[str, Any] = read_yaml(self.variants.root / layout.configs[named])
        return {key: value for key, value in told.items() if key not in NOT_TAKEN}

    def _trained_on_variant(self, of: "Resolver", changes: dict[str, Any], dataset: str, variant: str) -> "Resolver":
        """The same configuration with its models trained on a variant of the dataset.

        Audits are those of the dataset as it is: a variant is made from them.
        """
        made = self.variants.resolver({**changes, "train_on": of.variant(dataset, variant)})
        made.variant(dataset, variant)
        made.audits = of.audits
        return made


def _score(of: "Resolver", row: LayoutRow, layout: Layout, where: str, dataset: str) -> Stage:
    """The score of a row: by the dataset's labels or corrected ones, of all queries or some."""
    labels = of.audits.relabel(dataset) if row.labels else None
    subsets = {"similar": of.audits.similar_queries, "pooled": of.audits.false_negatives}
    subset = subsets[layout.subset](dataset) if layout.subset else None
    given = {"labels": labels, "subset": subset}
    if more := _lacking(of, layout, dataset):
        told = {"measures": [*of.runs.measures(dataset), *more], "split": of.runs.split(dataset)}
        return of.runs.measured(row.run, where, dataset, told, **given)
    return of.runs.score(row.run, where, dataset, **given)


def _lacking(of: "Resolver", layout: Layout, dataset: str) -> list[str]:
    """The measures that a paper prints and that a dataset's scores do not have, as far as runs and labels allow."""
    spec: dict[str, Any] = of.dataset_spec(dataset)
    if of.config["score"]["measures"] or spec["source"] == "group":
        return []
    have, depth = of.runs.measures(dataset), of.runs.depth(of.runs.split(dataset), dataset)
    counted = spec["relevance"] == "qrels"
    printed = {column for row in layout.rows for column, value in row.printed.items() if value is not None}
    return [
        measure
        for measure in dict.fromkeys(column.measure for column in layout.columns if column.id in printed)
        if measure not in have and cutoff(measure) <= depth and (counted or measure.split("@")[0] in NO_QRELS)
    ]
