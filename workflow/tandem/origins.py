"""Where everything starts: the stages of datasets, starting encoders and token ids."""

import re
from pathlib import Path
from typing import Any

from tandem.artifact import sha256
from tandem.config import Config
from tandem.errors import UserError
from tandem.fingerprint import fingerprint
from tandem.graph import Stage, Stages
from tandem.schema import nearest

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# What a dataset's entry says about it, and what is done with its runs: no part of the collection.
NOTES = (
    *("licence", "description", "homepage", "access", "where", "bytes", "counts"),
    *("language", "analyzer", "measures", "relevance", "match", "ignore_identical_ids"),
)
HUB = re.compile(r"[\w.-]+/[\w.-]+")


class Origins:
    """A configuration's datasets and encoders as stages; equal ones of other configurations are found by digest."""

    def __init__(self, config: Config, stages: Stages) -> None:
        self.config, self.stages = config, stages

    def stage(self, kind: str, dataset: str, name: str, params: dict[str, Any], **how: Any) -> Stage:
        """Register a stage; upstream stages of a role that is None are left out."""
        upstream = {role: stage for role, stage in how.pop("upstream", {}).items() if stage is not None}
        return self.stages.put(Stage(kind, dataset, name, params, upstream, how))

    def dataset(self, name: str | None = None) -> Stage:
        """The stage that makes a dataset: the configuration's, unless named."""
        name = name or self.config["dataset"]
        spec = dict(self.dataset_spec(name))
        path, checksum = spec.pop("path", None), spec.pop("checksum", None)
        for told in NOTES:
            spec.pop(told, None)
        how: dict[str, Any] = {"checksum": checksum} if checksum else {}
        if path is not None:
            if not Path(path).exists():
                raise UserError(f"datasets.{name}.path is {path}; no such file or folder")
            spec["fingerprint"], how["path"] = fingerprint(Path(path)), str(path)
        return self.stage("dataset", name, name, spec, **how)

    def dataset_spec(self, name: str) -> dict[str, Any]:
        """A dataset's entry."""
        known = self.config["datasets"]
        if name not in known:
            raise UserError(f"dataset: {name} is unknown{nearest(name, list(known))}")
        if not NAME.fullmatch(name):
            raise UserError(f"datasets.{name}: a name is letters, digits, '_', '-' and '.'")
        spec: dict[str, Any] = known[name]
        return spec

    def encoder(self, name: str) -> tuple[Stage, dict[str, Any]]:
        """A starting encoder's stage and its entry: from the catalogue, a folder, or the hub (`org/name`)."""
        known = self.config["encoders"]
        if name in known:
            spec = dict(known[name])
        elif Path(name).is_dir():
            spec = {"source": "folder", "path": name}
        elif HUB.fullmatch(name):
            spec = {"source": "hub", "name": name, "revision": "main"}
        else:
            hint = nearest(name, list(known))
            raise UserError(f"encoder: {name} is unknown: not in config/encoders, no folder, no org/name{hint}")
        params = {k: spec[k] for k in ("source", "package", "folder", "name", "revision", "sha256") if k in spec}
        how = {}
        if spec["source"] == "folder":
            weights = Path(spec["path"]) / "model.safetensors"
            if not weights.is_file():
                raise UserError(f"encoder: {spec['path']} holds no model.safetensors; only safetensors are loaded")
            params["sha256"], how["path"] = sha256(weights), spec["path"]
        label = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(name).name)
        return self.stage("encoder", "shared", label, params, **how), spec

    def tokens(self, encoder: str, dataset: str) -> Stage:
        """Token ids of a dataset under an encoder's tokenizer."""
        lengths = self.config["lengths"]
        params = {"query_length": lengths["query"], "passage_length": lengths["passage"]}
        made, _ = self.encoder(encoder)
        return self.stage(
            "tokens", dataset, made.name, params, upstream={"dataset": self.dataset(dataset), "encoder": made}
        )
