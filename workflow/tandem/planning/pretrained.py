"""Encoders that the DAG makes: the stages of entries with `source: pretrain`."""

from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import TRAINING, Stage

if TYPE_CHECKING:
    from tandem.planning.origins import Origins

SHAPE = ("layers", "hidden", "heads", "feed_forward", "positions")
MADE = ("vocabulary", "lowercase", *SHAPE)  # keys of an encoder from the beginning
# How a text's vector is made where neither the entry nor what it starts from says so; RetroMAE's and coCondenser's are
# their papers'.
USUAL: dict[str, dict[str, Any]] = {
    "crop": {"pooling": "mean", "normalize": True, "temperature": 0.05},
    "mlm": {"pooling": "mean", "normalize": False, "temperature": 1.0},
    "retromae": {"pooling": "cls", "normalize": False, "temperature": 1.0},
    "cocondenser": {"pooling": "cls", "normalize": False, "temperature": 1.0},
}


class Pretrained:
    """The pre-trained encoders of one configuration."""

    def __init__(self, origins: "Origins") -> None:
        self.of, self.config = origins, origins.config
        self.opened: list[str] = []

    def encoder(self, name: str) -> tuple[Stage, dict[str, Any]]:
        """The stage that pre-trains an encoder, and its entry with how a text's vector is made filled in."""
        if name in self.opened:
            raise UserError(f"encoders form a cycle: {' -> '.join([*self.opened, name])}")
        self.opened.append(name)
        try:
            return self._encoder(name)
        finally:
            self.opened.pop()

    def _encoder(self, name: str) -> tuple[Stage, dict[str, Any]]:
        spec: dict[str, Any] = self.config["encoders"][name]
        dataset = self._dataset(spec)
        if spec["start"] is None:
            start = self.vocabulary(name, spec, dataset)
        else:
            start, _ = self.of.encoder(spec["start"])
        if self._layers(spec) == 0 and spec["objective"] != "crop":
            raise UserError(
                f"encoders.{name}.objective is {spec['objective']}, but an encoder without layers learns by crop alone"
            )
        train = {**spec["train"], "seed": self._seed(spec)}
        if train.get("crop_shortest", 0) > train.get("crop_longest", 0):
            raise UserError(f"encoders.{name}.train.crop_shortest is above crop_longest ({train['crop_longest']})")
        made = {**USUAL[spec["objective"]], **self._told(name)}
        params = {"objective": spec["objective"], **made, "train": train}
        upstream = {"start": start, "tokens": self.of.tokens(name, dataset)}
        how = {key: self.config["execution"][key] for key in TRAINING}
        return self.of.stage("pretrain", dataset, name, params, upstream=upstream, **how), {**spec, **made}

    def vocabulary(self, name: str, spec: dict[str, Any], dataset: str) -> Stage:
        """The stage that learns a tokenizer from a corpus and draws the first weights."""
        at, longest = f"encoders.{name}", self.config["lengths"]["passage"] + 2
        if spec["hidden"] % spec["heads"]:
            raise UserError(f"{at}.hidden is {spec['hidden']}, which {at}.heads ({spec['heads']}) does not divide")
        if longest > spec["positions"]:
            raise UserError(f"{at}.positions is {spec['positions']}, but lengths.passage needs {longest}; raise it")
        params = {**{key: spec[key] for key in MADE}, "seed": self._seed(spec)}
        return self.of.stage("vocabulary", dataset, name, params, upstream={"dataset": self.of.dataset(dataset)})

    def tokenizer(self, name: str, seen: tuple[str, ...] = ()) -> Stage:
        """The stage whose tokenizer an encoder has: token ids are shared by all that descend from it."""
        if name in seen:
            raise UserError(f"encoders form a cycle: {' -> '.join([*seen, name])}")
        spec = self.config["encoders"].get(name, {})
        if spec.get("source") != "pretrain":
            return self.of.encoder(name)[0]
        if spec["start"] is None:
            return self.vocabulary(name, spec, self._dataset(spec))
        return self.tokenizer(spec["start"], (*seen, name))

    def _told(self, name: str) -> dict[str, Any]:
        """How a text's vector is made, as far as an encoder's entry says or else that of what it starts from."""
        spec = self.config["encoders"].get(name, {})
        own = {key: spec[key] for key in USUAL["crop"] if spec.get(key) is not None}
        return own if spec.get("start") is None else {**self._told(spec["start"]), **own}

    def _dataset(self, spec: dict[str, Any]) -> str:
        return str(spec["dataset"] or self.config["dataset"])

    def _seed(self, spec: dict[str, Any]) -> int:
        told = spec["train"]["seed"]
        return int(self.config["seed"] if told is None else told)

    def _layers(self, spec: dict[str, Any]) -> int | None:
        """The layers an encoder of ours has; None of one from elsewhere, which is not read for planning."""
        if spec["start"] is None:
            return int(spec["layers"])
        start = self.config["encoders"].get(spec["start"], {})
        return self._layers(start) if start.get("source") == "pretrain" else None
