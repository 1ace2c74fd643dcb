"""From a configuration to the stages that its systems and tables need."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tandem.errors import Unavailable, UserError
from tandem.planning import fusion_checks, losses, measured
from tandem.planning.audited import Audits
from tandem.planning.config import Config
from tandem.planning.ensembles import Ensembles
from tandem.planning.fused import Fusions
from tandem.planning.graph import TRAINING, Stage, Stages
from tandem.planning.indexed import Indexed
from tandem.planning.lists import Lists
from tandem.planning.origins import NAME, Origins
from tandem.planning.runs import CROSS_PARTS, DUAL_PARTS, Runs
from tandem.planning.schema import nearest
from tandem.planning.sparse import Sparse
from tandem.planning.validated import Validated
from tandem.planning.windowed import Windowed

SEARCHED = "searched"  # of a model's `dataset`: the one that is searched, whatever `train_on` says
TOWERS = {"pooling": "cls", "normalize": False, "temperature": 1.0}  # where neither model nor encoder says


class Resolver(Origins):
    """One configuration's models and runs; stages it shares with earlier ones are found by digest."""

    def __init__(self, config: Config, stages: Stages) -> None:
        super().__init__(config, stages)
        self.models: dict[str, Stage] = {}
        self.opened: list[str] = []
        self.runs, self.lists, self.audits = Runs(self), Lists(self), Audits(self)
        self.validated = Validated(self)
        self.fusions, self.ensembles = Fusions(self), Ensembles(self)
        self.windowed = Windowed(self)
        self.sparse = Sparse(self)
        self.indexed = Indexed(self)

    def spec(self, name: str, where: str, objectives: tuple[str, ...] | None = None) -> dict[str, Any]:
        """A model's entry; `where` names the key that asked for it, `objectives` what it must be."""
        known = self.config["models"]
        if name not in known:
            raise UserError(f"{where}: {name} is no model{nearest(name, list(known))}")
        spec: dict[str, Any] = known[name]
        if objectives and spec["objective"] not in objectives:
            raise UserError(f"{where}: {name} is a {spec['objective']} model, needed is {' or '.join(objectives)}")
        return spec

    def root(self, name: str, part: str, seen: tuple[str, ...] = ()) -> str:
        """The encoder a model's part (`dual` or `cross`) descends from."""
        if name in seen:
            raise UserError(f"models form a cycle: {' -> '.join([*seen, name])}")
        spec = self.config["models"].get(self.named(name))
        if spec is None:
            return str(self.config["encoder"] if name == "encoder" else name)
        start = spec["init"]
        if isinstance(start, dict):
            start = start["retriever" if part == "dual" else "reranker"]
        return self.root(self.named(start), part, (*seen, name))

    def named(self, part: str) -> str:
        """A model's name without `.retriever`, `.reranker` or the number of a checkpoint."""
        if checkpoint := self.validated.find(part):
            return checkpoint[0]
        stem = re.sub(r"\.(retriever|reranker)$", "", part)
        return stem if part not in self.config["models"] and stem in self.config["models"] else part

    def model(self, name: str, where: str, objectives: tuple[str, ...] | None = None) -> Stage:
        """The stage that trains a model, or the checkpoint of one that is named (`<model>.<number>`)."""
        if checkpoint := self.validated.find(name):
            self.spec(checkpoint[0], where, objectives)
            return self.validated.checkpoint(*checkpoint, where)
        name = self.named(name)
        spec = self.spec(name, where, objectives)
        if not NAME.fullmatch(name):
            raise UserError(f"models.{name}: a name is letters, digits, '_', '-' and '.'")
        if name in self.opened:
            raise UserError(f"models form a cycle: {' -> '.join([*self.opened, name])}")
        if name not in self.models:
            self.opened.append(name)
            self.models[name] = self._model(name, spec)
            self.opened.pop()
        return self.models[name]

    def _model(self, name: str, spec: dict[str, Any]) -> Stage:
        dataset = spec["dataset"] or self.config["train_on"] or self.config["dataset"]
        dataset = self.config["dataset"] if dataset == SEARCHED else dataset
        at = f"models.{name}"
        train = {**spec["train"], "seed": self.seed(spec["train"]["seed"])}
        self.lists.check(at, spec)
        losses.check(at, spec["train"])
        self.require_split(dataset, "train", f"{at}: is trained")
        upstream: dict[str, Stage | None] = {"dataset": self.dataset(dataset)}
        params: dict[str, Any] = {"objective": spec["objective"], "train": train}
        if spec["objective"] == "joint":
            upstream["retriever"] = self._start(f"{at}.init.retriever", spec["init"]["retriever"], DUAL_PARTS)
            upstream["reranker"] = self._start(f"{at}.init.reranker", spec["init"]["reranker"], CROSS_PARTS)
            upstream["cross_tokens"] = self.tokens(self.root(name, "cross"), dataset)
        else:
            # A cross-encoder may also start from a dual encoder's passage tower; not the other way round.
            fit = DUAL_PARTS if spec["objective"] == "dual" else ("cross", "joint", "dual")
            upstream["start"] = self._start(f"{at}.init", spec["init"], fit)
        params |= self._shape(name, spec, "cross" if spec["objective"] == "cross" else "dual") | {"lora": spec["lora"]}
        upstream["tokens"] = self.tokens(self.root(name, "cross" if spec["objective"] == "cross" else "dual"), dataset)
        upstream |= (lists := self.lists.all(at, spec["candidates"], dataset))
        if distil := train.get("distil"):
            upstream["teacher"] = self.lists.teacher(at, distil["from"], lists["candidates"], dataset)
            train["distil"] = {key: value for key, value in distil.items() if key != "from"}  # its stage says it
        if train["validate_every"]:
            upstream["validation"] = self.run(spec["candidates"]["from"], "dev", f"{at}.candidates.from", dataset)
        elif train["select"] == "best" and not train["checkpoints"]:
            raise UserError(f"{at}.train.select is best, which needs {at}.train.validate_every (or checkpoints)")
        how = {name: self.config["execution"][name] for name in TRAINING}
        if train["checkpoints"]:
            return self.validated.model(name, dataset, params, upstream, how)
        return self.stage("model", dataset, name, params, upstream=upstream, **how)

    def seed(self, told: int | None) -> int:
        """A seed as told, else the configuration's."""
        return int(self.config["seed"] if told is None else told)

    def _start(self, where: str, name: str, objectives: tuple[str, ...]) -> Stage:
        """What a model starts from: an encoder, or a trained model with the part that is needed."""
        if self.named(name) in self.config["models"]:
            return self.model(name, where, objectives)
        if name == "encoder" or name in self.config["encoders"]:
            return self.encoder(self.config["encoder"] if name == "encoder" else name)[0]
        try:
            return self.encoder(name)[0]
        except UserError:
            known = [*self.config["models"], *self.config["encoders"]]
            raise UserError(f"{where}: {name} is neither a model nor an encoder{nearest(name, known)}") from None

    def _shape(self, name: str, spec: dict[str, Any], part: str) -> dict[str, Any]:
        """Pooling, and a dual encoder's scale and sharing: the model's own keys, else those of what it starts from."""
        start = spec["init"]
        if isinstance(start, dict):
            start = start["retriever" if part == "dual" else "reranker"]
        keys = TOWERS if part == "dual" else {"pooling": TOWERS["pooling"]}
        base = self.config["models"].get(self.named(start))
        if base is not None:
            inherited = self._shape(self.named(start), base, part)
            for key, value in inherited.items():
                if (spec["objective"], part) != ("joint", "cross") and spec.get(key) not in (None, value):
                    raise UserError(f"models.{name}.{key} is {spec[key]}, but {start} has {value}; leave it out")
            return inherited
        _, entry = self.encoder(self.config["encoder"] if start == "encoder" else start)
        made = {} if part == "cross" else {"shared": spec.get("shared") is not False}
        for key, default in keys.items():
            made[key] = entry.get(key, default) if spec.get(key) is None else spec[key]
        return made

    def run(self, system: str, split: str, where: str, dataset: str | None = None) -> Stage:
        """The stage that writes a system's run; see `Runs`."""
        return self.runs.run(system, split, where, dataset or self.config["dataset"])

    def similar_queries(self, dataset: str) -> Stage:
        """The stage that finds a dataset's similar queries; see `Audits`."""
        return self.audits.similar_queries(dataset)

    def reference(self, name: str) -> Stage:
        """The run whose top passages a reduced dataset keeps; see `Validated`."""
        return self.validated.reference(name)


def check_all(config: Config) -> None:
    """Resolve whatever the configuration names, wanted or not: mistakes are told all at once."""
    wrong, resolver = measured.check(config), Resolver(config, Stages())
    made = [name for name, spec in config["encoders"].items() if spec["source"] == "pretrain"]
    asked: list[Callable[[], object]] = [partial(resolver.encoder, name) for name in made]
    asked += [partial(resolver.model, name, f"models.{name}") for name in config["models"]]
    asked += [partial(resolver.ensembles.check, name) for name in config["ensembles"]]
    asked += [partial(resolver.windowed.check, name) for name in config["aggregations"]]
    asked += [partial(fusion_checks.check, resolver, name) for name in config["fusions"]]
    asked += [partial(resolver.sparse.check, name) for name in config["sparse"]]
    for ask in asked:
        try:
            ask()
        except Unavailable:
            resolver.opened.clear()
        except UserError as error:
            resolver.opened.clear()
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))
