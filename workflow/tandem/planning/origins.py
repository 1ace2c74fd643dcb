"""Where everything starts: the stages of datasets, starting encoders and token ids."""

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tandem.data.select import UNLABELLED
from tandem.errors import Unavailable, UserError
from tandem.planning.config import Config
from tandem.planning.graph import Stage, Stages
from tandem.planning.pretrained import Pretrained
from tandem.planning.schema import NAME as NAME
from tandem.planning.schema import nearest, shown
from tandem.store.files import fingerprint, sha256

# What a dataset's entry says about it, and what is done with its runs: no part of the collection.
NOTES = (
    *("licence", "description", "homepage", "access", "where", "bytes", "counts", "tokens"),
    *("language", "analyzer", "measures", "score_split", "relevance", "match", "ignore_identical_ids", "factor"),
)
IDENTITY = ("url", "member", "sha256", "md5")  # of a file to be downloaded
# Of derived datasets: what they name is upstream, not a parameter.
UPSTREAM_KEYS = ("corpus_of", "queries_of", "of", "from")
# Formats that read files; the others make or fetch their own.
FROM_FILES = (
    *("beir", "files", "squad", "cmedqa2", "dpr", "entity_questions"),
    *("rocketqa", "rocketqa_tsv", "dureader_retrieval", "dureader2"),
)
MADE_SPLITS = {"dev_from_train", "train_from_test"}
# Splits of the formats that always have the same.
SPLITS = {
    "pydocs": ("train", "dev", "test"),
    "cmedqa2": ("train", "dev", "test"),
    "entity_questions": ("train", "dev", "test"),
    "dureader_retrieval": ("train", "dev"),
    "rocketqa_tsv": ("train",),
}
HUB = re.compile(r"[\w.-]+/[\w.-]+")
# An encoder's keys that decide its files.
ENCODER = ("source", "package", "folder", "name", "revision", "sha256", "layers")


class Origins(ABC):
    """A configuration's datasets and encoders as stages; equal ones of other configurations are found by digest."""

    def __init__(self, config: Config, stages: Stages) -> None:
        self.config, self.stages = config, stages
        self.deriving: list[str] = []
        self.pretrained = Pretrained(self)

    def stage(self, kind: str, dataset: str, name: str, params: dict[str, Any], /, **how: Any) -> Stage:
        """Register a stage; upstream stages of a role that is None are left out."""
        upstream = {role: stage for role, stage in how.pop("upstream", {}).items() if stage is not None}
        return self.stages.put(Stage(kind, dataset, name, params, upstream, how))

    def dataset(self, name: str | None = None) -> Stage:
        """The stage that makes a dataset: the configuration's, unless named."""
        name = name or self.config["dataset"]
        spec = dict(self.dataset_spec(name))
        if name in self.deriving:
            raise UserError(f"datasets form a cycle: {' -> '.join([*self.deriving, name])}")
        if spec["source"] == "group":
            raise Unavailable(f"datasets.{name} is a group: it has scores, but no passages; name one of {spec['of']}")
        path, checksum, files = (spec.pop(key, None) for key in ("path", "checksum", "files"))
        self.deriving.append(name)
        try:
            upstream = self._derived_from(name, spec)
        finally:
            self.deriving.pop()
        if spec["source"] == "union":
            spec["names"] = spec["of"]  # which ids begin with
        for told in (*NOTES, *UPSTREAM_KEYS):
            spec.pop(told, None)
        counts = None if MADE_SPLITS & set(spec) else self.dataset_spec(name).get("counts")
        notes = {"checksum": checksum, "counts": counts, "licence": self.dataset_spec(name).get("licence")}
        how = {key: told for key, told in notes.items() if told}
        if path is not None:
            if not Path(path).exists():
                raise UserError(f"datasets.{name}.path is {shown(path)}; no such file or folder")
            spec["fingerprint"], how["path"] = fingerprint(Path(path)), str(path)
        elif files:
            spec["downloads"] = sorted([file, *map(told.get, IDENTITY)] for file, told in files.items())
            how |= {"files": files, "name": name, "mirrors": self.config["execution"]["mirrors"]}
        elif spec["source"] in FROM_FILES or (spec["source"] == "pair" and not upstream["queries"]):
            if self.dataset_spec(name)["access"] == "licence":
                where = self.dataset_spec(name).get("where", "ask its makers")
                raise UserError(f"datasets.{name} is not public: {where}")
            raise UserError(f"datasets.{name}.path is missing; name the folder that holds its files")
        return self.stage("dataset", name, name, spec, upstream=upstream, **how)

    def _derived_from(self, name: str, spec: dict[str, Any]) -> dict[str, Stage | None]:
        """What a derived dataset is made of."""
        match spec["source"]:
            case "pair":
                asked = self.dataset(spec["queries_of"]) if "queries_of" in spec else None
                return {"corpus": self.dataset(spec["corpus_of"]), "queries": asked}
            case "unlabelled":
                asked = self.dataset(spec["queries_of"]) if "queries_of" in spec else None
                return {"of": self.dataset(spec["of"]), "queries": asked}
            case "union":
                return {f"of.{i}": self.dataset(of) for i, of in enumerate(spec["of"])}
            case "windows":
                return {"of": self.dataset(spec["of"])}
            case "dissimilar":
                return {"of": self.dataset(spec["of"]), "similar": self.similar_queries(spec["of"])}
            case "reduced":
                return {"of": self.dataset(spec["of"]), "run": self.reference(name)}
            case _:
                return {}

    def variant(self, dataset: str, kind: str) -> str:
        """The name of a dataset's variant (`<dataset>-dissimilar`), which is entered if it is not there."""
        name = f"{dataset}-{kind}"
        spec = {**self.dataset_spec(dataset), "source": kind, "of": dataset}
        for key in ("path", "files", "checksum"):
            spec.pop(key, None)
        kept = {key: spec[key] for key in (*NOTES, "source", "of") if key in spec}
        self.config["datasets"].setdefault(name, kept)
        return name

    @abstractmethod
    def similar_queries(self, dataset: str) -> Stage:
        """The audit that a dataset without similar queries needs; an audit is planned with models."""

    @abstractmethod
    def reference(self, name: str) -> Stage:
        """The run that a reduced dataset keeps the top of; a run may need models."""

    def splits(self, dataset: str) -> set[str] | None:
        """The splits a dataset has, as far as its entry or its folder tell without reading it; None if they do not."""
        spec = self.dataset_spec(dataset)
        made = {key.partition("_")[0] for key in MADE_SPLITS & set(spec)}
        for key in ("splits", "queries", "questions", "files_of"):
            if key in spec:
                return set(spec[key]) | made
        if spec["source"] == "reduced":
            return {"dev"}
        if spec["source"] == "unlabelled":
            there = self.splits(spec["of"])
            return there and there | {UNLABELLED}
        if spec["source"] == "union":
            parts = [self.splits(of) for of in spec["of"]]
            return None if None in parts else set().union(*(part for part in parts if part))
        if spec["source"] in SPLITS:
            return set(SPLITS[spec["source"]])
        if spec["source"] in ("dissimilar", "windows", "group"):
            return self.splits(spec["of"] if isinstance(spec["of"], str) else spec["of"][0])
        if spec["source"] == "pair" and "queries_of" in spec:
            return self.splits(spec["queries_of"])
        if spec["source"] in ("beir", "pair") and "path" in spec and Path(spec["path"]).is_dir():
            found = {path.name.split(".tsv")[0] for path in (Path(spec["path"]) / "qrels").glob("*.tsv*")}
            return (found | made) or {"test"}
        # An entry of the catalogue that tells how many queries each split has.
        counted = {key for key in spec.get("counts", {}) if key != "passages" and not key.endswith("_qrels")}
        return counted or None

    def require_split(self, dataset: str, split: str, what: str) -> None:
        """Refuse what needs a split that a dataset is known to lack."""
        there = self.splits(dataset)
        if there is not None and split not in there:
            have = ", ".join(sorted(there)) or "none"
            hint = "; name another dataset with train_on" if split == "train" else ""
            raise Unavailable(f"{what} on split {split}, but dataset {dataset} has {have}{hint}")

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
        """A starting encoder's stage and its entry: from the catalogue, a folder, the hub (`org/name`) or the DAG."""
        known = self.config["encoders"]
        if name in known and known[name]["source"] == "pretrain":
            return self.pretrained.encoder(name)
        if name in known:
            spec = dict(known[name])
        elif Path(name).is_dir():
            spec = {"source": "folder", "path": name}
        elif HUB.fullmatch(name):
            spec = {"source": "hub", "name": name, "revision": "main"}
        else:
            hint = nearest(name, list(known))
            raise UserError(f"encoder: {name} is unknown: not in config/encoders, no folder, no org/name{hint}")
        params = {key: spec[key] for key in ENCODER if key in spec}
        how = {"licence": spec["licence"]} if "licence" in spec else {}
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
        made = self.pretrained.tokenizer(encoder)
        return self.stage(
            "tokens", dataset, made.name, params, upstream={"dataset": self.dataset(dataset), "encoder": made}
        )
