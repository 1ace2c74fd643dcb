"""What a configuration wants: its stages, its tables' rows, and the way to each."""

from pathlib import Path

from tandem.config import Config, complete, read_yaml
from tandem.errors import UserError
from tandem.graph import Stage, Stages
from tandem.resolver import Resolver, check_all, sweep_points
from tandem.schema import nearest

Row = dict[str, str]


class Plan:
    """Everything the Snakefile asks.

    Args:
        told: the configuration as Snakemake gathered it.
        root: the checkout.
    Raises:
        UserError: one line per mistake in the configuration.
    """

    def __init__(self, told: Config, root: Path) -> None:
        self.root = root
        self.config = complete(told, root)
        check_all(self.config)
        self.stages = Stages()
        self.resolver = Resolver(self.config, self.stages)
        self.tables: dict[str, list[tuple[Row, Stage]]] = {}
        for name in self.layouts():
            try:
                self.tables[name] = self._rows(name)
            except UserError:
                if name in self.config["tables"]:
                    raise
        for name in self.config["tables"]:
            if name not in self.tables:
                raise UserError(f"tables: {name} is unknown{nearest(name, sorted(self.tables))}")
        for name in self.config["sweeps"]:
            self.tables[f"sweeps/{name}"] = self._sweep(name)

    def layouts(self) -> list[str]:
        """Names of the layouts in config/papers/: `paper/table`, or `table` for one that belongs to no paper."""
        folder = self.root / "config/papers"
        return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))

    def layout(self, table: str) -> str:
        """The layout file of a table; a sweep's table is laid out as the summary is."""
        return f"config/papers/{'summary' if table.startswith('sweeps/') else table}.yaml"

    def wanted(self) -> list[str]:
        """The tables of `rule all`."""
        return [*self.config["tables"], *(f"sweeps/{name}" for name in self.config["sweeps"])]

    def scores(self, table: str) -> list[str]:
        """Manifests of the scores that a table shows."""
        return list(dict.fromkeys(stage.manifest for _, stage in self.tables[table]))

    def shards(self, key: str) -> list[str]:
        """The jobs that encode an embeddings stage: `execution.shards` for passages, none for queries."""
        stage = self.stages.find("embeddings", key)
        count = self.config["execution"]["shards"] if stage.params["side"] == "passages" else 0
        return [f"{stage.folder}/shards/{i}-of-{count}.json" for i in range(count)]

    def rows(self, table: str) -> list[Row]:
        """A table's rows for the command line: system, first_stage and the folder of its scores."""
        return [{**row, "scores": stage.folder} for row, stage in self.tables[table]]

    def _rows(self, table: str) -> list[tuple[Row, Stage]]:
        where = self.layout(table)
        made = []
        for row in read_yaml(self.root / where).get("rows", []):
            if "run" in row:
                named = {"system": row["system"], "first_stage": row.get("first_stage", "")}
                made.append((named, self.resolver.score(row["run"], where)))
        return made

    def _sweep(self, name: str) -> list[tuple[Row, Stage]]:
        made = []
        for label, config in sweep_points(self.config, name):
            stage = Resolver(config, self.stages).score(self.config["sweeps"][name]["run"], f"sweeps.{name}.run")
            made.append(({"system": label, "first_stage": ""}, stage))
        return made
