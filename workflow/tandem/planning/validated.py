"""Checkpoints as stages, and the stages that validate them while the training goes on.

With `train.checkpoints: N` a training is a chain of N stages `<model>.1` … `<model>.N`, each a system like any other;
the stage `model` takes one of them over. Checkpoints are validated as such systems on a reduced dataset, by other jobs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tandem.data.splits import VALIDATED as SPLIT
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.origins import NOTES
from tandem.planning.runs import cutoff

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

PARTS = {"dual": ("dual",), "cross": ("cross",), "joint": ("dual", "cross")}
OF_THE_WHOLE = ("counts", "bytes", "measures", "score_split", "access", "where")  # not true of a part of a dataset


@dataclass(frozen=True)
class Validation:
    """One checkpoint's value on the reduced dataset, and what makes that of the full one.

    Attributes:
        model: the model's name.
        part: `dual` or `cross`.
        checkpoint: the stage that is validated.
        reduced: its value on the reduced dataset.
    """

    model: str
    part: str
    checkpoint: Stage
    reduced: Stage

    @property
    def row(self) -> dict[str, str]:
        """The same for a command line."""
        folders = {"checkpoint": self.checkpoint.folder, "reduced": self.reduced.folder}
        return {"model": self.model, "part": self.part, **folders}


class Validated:
    """The checkpoints of one configuration's models."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config
        self.chains: dict[str, list[Stage]] = {}
        self.validations: dict[str, list[Validation]] = {}

    def find(self, name: str) -> tuple[str, int] | None:
        """Model and number of a checkpoint's name, `<model>.<number>`; None where it names none."""
        stem, _, number = name.rpartition(".")
        models = self.config["models"]
        if name in models or stem not in models or not re.fullmatch(r"[1-9]\d*", number):
            return None
        count = models[stem]["train"]["checkpoints"] or 0
        return (stem, int(number)) if int(number) <= count else None

    def checkpoint(self, name: str, number: int, where: str) -> Stage:
        """The stage that trains a model up to its checkpoint of a number, counted from 1."""
        if name not in self.chains:
            self.of.model(name, where)
        return self.chains[name][number - 1]

    def model(
        self, name: str, dataset: str, params: dict[str, Any], upstream: dict[str, Stage | None], how: dict[str, Any]
    ) -> Stage:
        """The stage that takes over a model's last or best checkpoint, and the chain that it comes from.

        Args:
            name: the model.
            dataset: what it is trained on.
            params: of the training in one piece.
            upstream: likewise.
            how: likewise.
        """
        self._check(name, dataset, params["train"])
        count: int = params["train"]["checkpoints"]
        chain: list[Stage] = []
        # Which one is taken over, and how many there are in all, is no part of a segment but its end.
        train = {key: value for key, value in params["train"].items() if key != "checkpoints"} | {"select": "last"}
        for number in range(1, count + 1):
            after = {"after": chain[-1]} if chain else {}
            told = params | {"train": train, "until": [number, count]}
            stage = self.of.stage("checkpoint", dataset, f"{name}.{number}", told, upstream=upstream | after, **how)
            chain.append(stage)
        self.chains[name] = chain
        there, best = self.of.splits(dataset), params["train"]["select"] == "best"
        self.validations[name] = [
            Validation(name, part, stage, self._reduced_value(name, number, part))
            for part in (self._parts(name) if best or there is None or SPLIT in there else ())
            for number, stage in enumerate(chain, 1)
        ]
        taken: dict[str, Stage | None] = {f"checkpoint.{number}": one for number, one in enumerate(chain, 1)}
        if best:
            taken |= {f"validation.{n}": one.reduced for n, one in enumerate(self.validations[name][:count], 1)}
        return self.of.stage("model", dataset, name, params, upstream=taken)

    def _check(self, name: str, dataset: str, train: dict[str, Any]) -> None:
        """What is asked of a model's checkpoints must be possible."""
        told, count = self._told(name), train["checkpoints"]
        for number in range(1, count + 1):
            if f"{name}.{number}" in self.config["models"]:
                raise UserError(
                    f"models.{name}.{number} has the name of checkpoint {number} of models.{name}; name it otherwise"
                )
        if train["steps"] is not None and train["steps"] < count:
            raise UserError(f"models.{name}.train.checkpoints is {count}, but there are only {train['steps']} steps")
        deepest = self.of.runs.depth(SPLIT, dataset)
        if cutoff(told["measure"]) > deepest:
            raise UserError(
                f"validation.measure: {told['measure']} looks deeper than runs on {SPLIT} go ({deepest}); "
                f"raise depth.{SPLIT}"
            )
        if told["method"] == "average_rank" and self.of.dataset_spec(dataset)["relevance"] == "answers":
            raise UserError(f"validation.method is average_rank, which needs qrels; dataset {dataset} has answers")

    def _told(self, name: str) -> dict[str, Any]:
        """How a model's checkpoints are validated: the configuration's `validation`, with the model's own over it."""
        return {**self.config["validation"], **self.config["models"][name]["validation"]}

    def _parts(self, name: str) -> tuple[str, ...]:
        """A model's parts, the one that decides first."""
        parts = PARTS[self.config["models"][name]["objective"]]
        first = self._told(name)["part"]
        return parts if first not in parts else (first, *(part for part in parts if part != first))

    def _dataset(self, name: str) -> str:
        """What a model is trained on, and validated on."""
        return str(self.config["models"][name]["dataset"] or self.config["train_on"] or self.config["dataset"])

    def _reduced(self, name: str) -> str:
        """The reduced dataset of a model, which is entered if it is not there."""
        told, base = self._told(name), self._dataset(name)
        size = [f"{key}{told[key]}" for key in ("others", "queries") if told[key]]
        label = re.sub(r"[^\w.-]", "-", "-".join([base, "reduced", told["from"], str(told["depth"]), *size]))
        notes = {key: value for key, value in self.of.dataset_spec(base).items() if key in NOTES}
        kept = {key: value for key, value in notes.items() if key not in OF_THE_WHOLE}
        entry = {"access": "download", "score_split": None, **kept, "source": "reduced", "of": base}
        entry |= {key: told[key] for key in ("from", "depth", "others")}
        if told["queries"]:
            entry["dev_queries"] = told["queries"]
        if self.config["datasets"].setdefault(label, entry) != entry:
            raise UserError(f"datasets.{label} has the name of a dataset made for validation; name it otherwise")
        return label

    def reference(self, name: str) -> Stage:
        """The run whose top passages a reduced dataset keeps."""
        spec = self.of.dataset_spec(name)
        deepest = self.of.runs.depth(SPLIT, spec["of"])
        if spec["depth"] > deepest:
            raise UserError(
                f"datasets.{name}.depth (validation.depth) is {spec['depth']}, but runs on {SPLIT} are {deepest} deep; "
                f"raise depth.{SPLIT} or lower it"
            )
        return self.of.run(spec["from"], SPLIT, f"datasets.{name}.from", spec["of"])

    def _reduced_value(self, name: str, number: int, part: str) -> Stage:
        """The stage that validates a checkpoint on the reduced dataset."""
        told, dataset, where = self._told(name), self._reduced(name), f"models.{name}.validation"
        system = f"{name}.{number}"
        if part == "dual" and told["method"] == "average_rank":
            upstream = self.of.runs.vectors(system, SPLIT, where, dataset)
            return self.of.stage("average_rank", dataset, f"{system}.{SPLIT}", {"split": SPLIT}, upstream=upstream)
        system = f"given+{system}" if part == "cross" else system
        return self.of.runs.measured(system, where, dataset, {"measures": [told["measure"]], "split": SPLIT})

    def full(self, validation: Validation) -> Stage:
        """The stage that measures the same checkpoint on the full corpus, on the same queries."""
        told, dataset = self._told(validation.model), self._dataset(validation.model)
        system = validation.checkpoint.name
        system = f"{told['from']}+{system}" if validation.part == "cross" else system
        subset = self.of.dataset(self._reduced(validation.model)) if told["queries"] else None
        params = {"measures": [told["measure"]], "split": SPLIT}
        return self.of.runs.measured(system, f"models.{validation.model}.validation", dataset, params, subset=subset)

    def of_models(self, stages: Iterable[Stage]) -> list[Validation]:
        """The validations of all checkpoints of the models that some stages are made of.

        They stand model by model and part by part, the part that decides first.
        """
        above: dict[str, Stage] = {}
        waiting = list(stages)
        while waiting:
            stage = waiting.pop()
            if stage.folder not in above:
                above[stage.folder] = stage
                waiting += stage.upstream.values()
        # Of equal models of two names the first is shown.
        found: dict[str, list[Validation]] = {}
        for name, validations in self.validations.items():
            found.setdefault(self.of.models[name].folder, validations)
        return [one for folder, validations in found.items() if folder in above for one in validations]
