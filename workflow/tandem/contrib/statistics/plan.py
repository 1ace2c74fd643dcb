"""Plan the stages of the datasets of statistics tables."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from tandem.config.loading import read_section
from tandem.config.merging import Raw
from tandem.contrib.statistics.options import StatisticsLayout
from tandem.errors import UserError
from tandem.plan.context import plans_view
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, Plan, View
from tandem.plan.planner import Planner


@plans_view("statistics")
class StatisticsView(View):
    """Tables of config/statistics/, with the datasets of each that can be counted here."""

    rules = ("statistics", "statistics_table")
    writes = ("statistics",)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.layouts = {
            path.stem: path for path in sorted((plan.root / "config/statistics").glob("*.yaml"))
        }
        catalogue = plan.settings.model_dump(mode="json", exclude_unset=True, include={"datasets"})[
            "datasets"
        ]
        # evaluated only when a table is needed, since looking for downloads takes a second
        self.counted = cache(
            lambda table: count_datasets(self.layouts[table], plan.planner, catalogue)
        )

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        return {"statistics": []}

    def files(self) -> dict[str, Callable[[], list[str]]]:
        """See `View.files`."""
        return {"statistics": lambda: list(map(self.file_of, self.layouts))}

    def files_of_paper(self, paper: str) -> list[str]:
        """See `View.files_of_paper`."""
        return [self.file_of(table) for table in self.layouts if table.startswith(f"{paper}_")]

    def everything(self) -> list[Check]:
        """See `View.everything`."""
        return [partial(self.counted, table) for table in self.layouts]

    def file_of(self, table: str) -> str:
        """Return the CSV file of a table."""
        return f"{self.plan.views}/statistics/{table}.csv"


class StatisticsDatasets(NamedTuple):
    """The stages of a statistics table's datasets on this machine, and the reasons why others are not counted."""

    stages: dict[str, Stage]
    absent: dict[str, str]


def count_datasets(layout: Path, planner: Planner, catalogue: Raw) -> StatisticsDatasets:
    """Return the datasets of a table that can be counted without a download, and why the others cannot."""
    # the code for downloads takes a quarter of a second to import; other targets need not wait for it
    from tandem.extras.catalogue import locate_datasets, read_entries

    named = [
        name
        for entry in read_section(StatisticsLayout, layout).datasets.values()
        for name in entry.datasets
    ]
    stages, absent = dict[str, Stage](), dict[str, str]()
    known = [name for name in dict.fromkeys(named) if name in catalogue]
    for name, presence in locate_datasets(known, read_entries(catalogue)).items():
        if presence.state not in ("here", "local"):
            absent[name] = f"not here ({str(presence).removeprefix('download ')})"
            continue
        try:
            stages[name] = planner.dataset(name)
        except UserError as error:
            absent[name] = f"not here ({error})"
    return StatisticsDatasets(stages, absent)
