"""The words after `tandem search` and `tandem export`: names, YAML files, flags; and the plan that they ask for."""

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.config.loading import gathered
from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[3]  # the checkout


@dataclass(frozen=True)
class Words:
    """A command line, taken apart.

    Attributes:
        names: what is neither a flag nor a YAML file, in order.
        files: YAML files laid upon config/config.yaml.
        values: flag → its value.
        switches: flags without a value that were given.
    """

    names: list[str]
    files: list[Path]
    values: dict[str, str]
    switches: set[str]

    def count(self, flag: str, default: int) -> int:
        """A flag's whole number, at least 1."""
        told = self.values.get(flag, str(default))
        if not told.isdecimal() or int(told) < 1:
            raise UserError(f"{flag} is {told}; allowed are 1, 2, 3 …")
        return int(told)

    def plan(self) -> FullPlan:
        """The configuration's plan: the Snakefile's own, so that stages have the names they were built under."""
        config = gathered(self.files, ROOT)
        if "--dataset" in self.values:
            config["dataset"] = self.values["--dataset"]
        return FullPlan(config, ROOT)

    def snakemake(self, targets: Iterable[str], system: str = "") -> str:
        """The command that builds files under this configuration.

        Args:
            targets: paths below results/.
            system: a run's expression that no table of the configuration names, so that the command must.
        """
        line = ["snakemake", "--cores", str(os.cpu_count() or 1), *targets]
        line += ["--configfile", *map(str, self.files)] if self.files else []
        told = [f"dataset={self.values['--dataset']}"] if "--dataset" in self.values else []
        told += [f"systems=[{system}]"] if system else []
        return shlex.join([*line, *(["--config", *told] if told else [])])


def read(words: list[str], values: Iterable[str], switches: Iterable[str]) -> Words:
    """Take a command line apart.

    Several words in one that end in `.yaml` are a query, unless there is such a file.

    Args:
        words: after the command; what follows a `--` is neither flag nor file.
        values: flags that take a value.
        switches: flags that take none.
    Raises:
        UserError: an unknown flag, or one without its value.
    """
    made, rest = Words([], [], {}, set()), list(words)
    while rest:
        word = rest.pop(0)
        if word in values and rest:
            made.values[word] = rest.pop(0)
        elif word in switches:
            made.switches.add(word)
        elif word == "--":
            made.names.extend(rest)
            break
        elif word.startswith("--"):
            allowed = ", ".join([*(f"{flag} …" for flag in values), *switches])
            raise UserError(f"{word} is no flag, or has no value; allowed: {allowed}")
        elif word.endswith((".yaml", ".yml")) and (len(word.split()) == 1 or Path(word).is_file()):
            made.files.append(Path(word))
        else:
            made.names.append(word)
    return made
