"""Retrieval through an index: the stages behind `<dual encoder>@<name under indexes:>`, and those of its trade-offs."""

from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.schema import NAME, mistakes, nearest, typed
from tandem.retrieval.indexes.types import SEARCHED, TYPES, check
from tandem.stages.retrieval import IndexParams

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver


def indexes(told: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Every index typed by its type's schema; and the mistakes."""
    made: dict[str, Any] = {}
    wrong = []
    for name, spec in told.items():
        at, kind = f"indexes.{name}", spec.get("type", "factory" if "factory" in spec else None)
        if not NAME.fullmatch(name):
            wrong.append(f"{at}: a name is letters, digits, '_', '-' and '.'")
            continue
        if not isinstance(kind, str) or kind not in TYPES:
            hint = nearest(str(kind), list(TYPES))
            allowed = "" if "allowed" in hint else f" Allowed: {', '.join(TYPES)}"
            wrong.append(f"{at}.type is {kind!r}{hint}{allowed}")
            continue
        one = {"$ref": f"#/$defs/index/{kind}"}
        made[name] = typed(spec, one, schema)
        found = mistakes(made[name], one, schema, at)
        if not found:
            try:
                check(_index_params(made[name]), at)
            except UserError as error:
                found = [str(error)]
        wrong += found
    return made, wrong


def _index_params(spec: dict[str, Any]) -> IndexParams:
    """The parameters of an index, of an entry that also says how it is searched."""
    return IndexParams.model_validate({k: v for k, v in spec.items() if k not in SEARCHED and (k, v) != ("seed", None)})


class Indexed:
    """The indexes of one configuration's dual encoders."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def run(self, system: str, split: str, where: str, dataset: str) -> Stage:
        """The stage that writes the run of `<dual encoder>@<index>`."""
        model, _, name = system.rpartition("@")
        spec = self._spec(name, f"{where}: {system}")
        upstream = self.of.runs.vectors(model, split, where, dataset)
        passages = upstream["passages"]
        assert passages is not None
        upstream["index"] = index = self.index(passages, name, dataset)
        depth = self.of.runs.depth(split, dataset)
        params = {"depth": depth, "split": split, **{key: spec[key] for key in SEARCHED if key in spec}}
        return self.of.stage("ann", dataset, f"{index.name}.{split}", params, upstream=upstream, **self._how())

    def index(self, passages: Stage, name: str, dataset: str) -> Stage:
        """The stage that builds an index of a dual encoder's passages."""
        spec = self._spec(name, f"indexes.{name}")
        params = {key: value for key, value in spec.items() if key not in SEARCHED}
        if "seed" in params:
            params["seed"] = self.of.seed(params["seed"])
        rows = self.of.dataset_spec(dataset).get("counts", {}).get("passages")
        check(_index_params(params), f"indexes.{name}", rows, self._dimension(passages) if params.get("m") else None)
        label = f"{passages.upstream['model'].name}@{name}"
        return self.of.stage("index", dataset, label, params, upstream={"passages": passages}, **self._how())

    def tradeoffs(self) -> Stage:
        """The stage that measures indexes against one another: recall, latency and size."""
        told, dataset = self.config["tradeoffs"], self.config["dataset"]
        split = told["split"] or self.of.runs.split(dataset)
        self.of.require_split(dataset, split, "tradeoffs.split: queries are asked")
        upstream = self.of.runs.vectors(told["model"], split, "tradeoffs.model", dataset)
        passages = upstream["passages"]
        assert passages is not None
        if unknown := [name for name in told["indexes"] if name not in self.config["indexes"]]:
            self._spec(unknown[0], "tradeoffs.indexes")
        upstream |= {f"index.{i}": self.index(passages, name, dataset) for i, name in enumerate(told["indexes"])}
        params = {**told, "split": split}
        del params["model"]  # upstream says it
        return self.of.stage("tradeoffs", dataset, f"{told['model']}.{split}", params, upstream=upstream, **self._how())

    def _spec(self, name: str, where: str) -> dict[str, Any]:
        known = self.config["indexes"]
        if name not in known:
            raise UserError(f"{where}: {name} is no index{nearest(name, list(known))}")
        spec: dict[str, Any] = known[name]
        return spec

    def _how(self) -> dict[str, Any]:
        return {key: self.config["execution"][key] for key in ("index_gpu", "devices")}

    def _dimension(self, passages: Stage) -> int | None:
        """The vectors' dimension, if the encoder's files or its entry tell it."""
        # Imported only where a parameter depends on it: nothing else in planning opens an encoder.
        from tandem.estimating.encoders import shape_of

        try:
            return shape_of(passages.upstream["tokens"], self.config["encoders"]).hidden
        except UserError:
            return None
