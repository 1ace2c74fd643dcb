"""What the validations of checkpoints say: curves, and how faithful the reduced corpus is to the full one."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tandem.artifact import Artifact, open_artifact
from tandem.errors import UserError
from tandem.reporting.charts import Series, line_chart, scatter
from tandem.reporting.flags import read_json
from tandem.scoring.agreement import kendall, pearson
from tandem.training.selection import best, validated, worth

KEYS = {"model", "part", "checkpoint", "reduced", "full"}


@dataclass(frozen=True)
class Curve:
    """The checkpoints of a model in order, by the values of one of its parts.

    Attributes:
        model: its name.
        part: `dual` or `cross`.
        checkpoints: the checkpoints' artifacts.
        reduced: their validations on the reduced corpus.
        full: those on the full corpus; none where they were not made.
    """

    model: str
    part: str
    checkpoints: list[Artifact]
    reduced: list[Artifact]
    full: list[Artifact]

    @property
    def steps(self) -> list[int]:
        """Steps of each checkpoint."""
        return [int(one.manifest["steps"]) for one in self.checkpoints]

    @property
    def measures(self) -> tuple[str, str]:
        """What was measured on the reduced corpus and on the full one (empty where nothing was)."""
        return validated(self.reduced[0])[0], validated(self.full[0])[0] if self.full else ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Per checkpoint of which both are known: key, step, reduced, full."""
        both = zip(self.checkpoints, self.steps, values(self.reduced), values(self.full), strict=True)
        return [{"key": one.key, "step": step, "reduced": low, "full": full} for one, step, low, full in both]

    @property
    def tau(self) -> float | None:
        """Kendall's τ-b between both, higher better on both sides."""
        return kendall(*self._worths()) if self.full else None

    @property
    def r(self) -> float | None:
        """Pearson's r between both."""
        return pearson(*self._worths()) if self.full else None

    @property
    def same(self) -> bool | None:
        """Whether both choose the same checkpoint."""
        chosen = [best(worths) for worths in self._worths()] if self.full else []
        return chosen[0] == chosen[1] if chosen else None

    @property
    def line(self) -> Markup:
        """Value against step, with that of the full corpus where it is the same measure."""
        told = [Series(f"{self.part}, reduced corpus", self.steps, values(self.reduced))]
        if self.measures[0] == self.measures[1]:
            told.append(Series(f"{self.part}, full corpus", self.steps, values(self.full)))
        return line_chart("Checkpoints on the dev queries", told, "step", self.measures[0])

    @property
    def points(self) -> Markup:
        """Full against reduced, a point per checkpoint."""
        both = Series(f"{self.model}, {self.part}", values(self.reduced), values(self.full))
        labels = [f"{self.measures[0]}, reduced corpus", f"{self.measures[1]}, full corpus"]
        return scatter("Fidelity of the reduced corpus", [both], *labels)

    def _worths(self) -> tuple[list[float], list[float]]:
        """Values turned so that higher is better: reduced, full."""
        return [worth(one) for one in self.reduced], [worth(one) for one in self.full]


def values(validations: list[Artifact]) -> list[float]:
    """The mean of each validation."""
    return [validated(one)[1] for one in validations]


def read_curves(text: str) -> list[Curve]:
    """`--rows` or `--validations`: a JSON list of objects with exactly model, part, checkpoint, reduced and full.

    The last three are folders of artifacts; full is empty where nothing was measured. A model's part stands together,
    its checkpoints in order.
    """
    rows = read_json("validations", text)
    if not isinstance(rows, list) or any(not isinstance(row, dict) or set(row) != KEYS for row in rows):
        raise UserError(f"validations: is not a JSON list of objects with {', '.join(sorted(KEYS))}")
    made = []
    for (model, part), group in groupby(rows, key=lambda row: (row["model"], row["part"])):
        told = list(group)
        opened = [[_opened(row[key]) for row in told if row[key]] for key in ("checkpoint", "reduced", "full")]
        made.append(Curve(model, part, *opened))
    return made


def _opened(folder: str) -> Artifact:
    return open_artifact(Path(folder), verify=False)
