"""The sweeps that there are: those of the configuration, and those of papers, each a target of its own.

A sweep stands under `sweeps:` of a configuration, or is a file of config/sweeps/.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from tandem.errors import UserError
from tandem.planning.config import Config, known
from tandem.planning.schema import mistakes, typed
from tandem.planning.sweep import Sweep
from tandem.planning.variants import Variants


def shipped(folder: Path, schema: Config) -> dict[str, Config]:
    """Name → sweep of every file of a folder, with defaults."""
    made = {}
    for path in sorted(folder.glob("*.yaml")):
        made[path.stem] = typed(known(path), {"$ref": "#/$defs/sweep"}, schema)
        if wrong := mistakes(made[path.stem], {"$ref": "#/$defs/sweep"}, schema):
            raise UserError("\n".join(f"{path}: {line}" for line in wrong))
    return made


class Sweeps:
    """The sweeps of a configuration, which `rule all` makes, and those of config/sweeps/, each for itself.

    Args:
        variants: of the configuration.
        folder: config/sweeps/.
    Raises:
        UserError: a mistake in one of the configuration's own.
    """

    def __init__(self, variants: Variants, folder: Path) -> None:
        told = variants.resolver({}).config["sweeps"]
        for name in told:
            if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", name):
                raise UserError(f"sweeps.{name}: a name is letters, digits, '_' and '-'")
        self.wanted, self.missing = list(told), dict[str, str]()
        self.made = {name: Sweep(name, f"sweeps.{name}", spec, variants) for name, spec in told.items()}
        for name, spec in shipped(folder, variants.schema).items():
            if name in self.made:
                continue
            try:
                self.made[name] = Sweep(name, f"config/sweeps/{name}.yaml", spec, variants, stand_in=True)
            except UserError as error:
                self.missing[name] = str(error)

    @property
    def targets(self) -> dict[str, list[str]]:
        """Target of the command line → sweeps: `sweep_<name>` and `sweeps` for the configuration's, else by name."""
        own = {f"sweep_{name}".replace("-", "_"): [name] for name in self.wanted}
        others = {name.replace("-", "_"): [name] for name in (*self.made, *self.missing) if name not in self.wanted}
        return {"sweeps": self.wanted, **own, **others}

    def files(self, names: Iterable[str]) -> list[str]:
        """The file of each sweep that programs read; a `UserError` for one that cannot be had."""
        for name in names:
            if name not in self.made:
                raise UserError(f"sweep {name} cannot be made: {self.missing[name]}")
        return [f"results/sweeps/{name}.json" for name in names]
