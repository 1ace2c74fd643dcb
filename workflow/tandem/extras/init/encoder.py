"""The encoder of a new configuration: the one that is named, else the usual one for a language."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tandem import ROOT
from tandem.config.loading import gathered, load_settings
from tandem.config.merging import Raw, merged
from tandem.errors import UserError
from tandem.models.described import described_towers
from tandem.plan.encoders import Shape, shape_of
from tandem.plan.graph import Stages
from tandem.plan.planner import Planner
from tandem.plan.towers import HUB, towers

USUAL = {"en": "minilm", "zh": "bert-base-chinese"}
OTHERWISE = "bert-base-multilingual-cased"
DESCRIBING = ("config.json", "modules.json", "*/config.json")


@dataclass(frozen=True)
class StartingEncoder:
    """An encoder as a configuration names it.

    Attributes:
        name: value of `encoder`.
        entry: of `encoders:`; empty where the name says enough.
        vectors: how they are computed, as its entry or its own files say.
        shape: its sizes; None where they are not known here.
        zero_shot: whether its vectors are worth a row without training.
    """

    name: str
    entry: Raw = field(default_factory=dict)
    vectors: Raw = field(default_factory=dict)
    shape: Shape | None = None
    zero_shot: bool = True

    def __str__(self) -> str:
        """Its name and how its vectors are computed."""
        vectors = {key: value for key, value in self.vectors.items() if value not in (None, {}, [])}
        texts = ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in vectors.items())
        return f"{self.name}: {texts or 'does not describe its vectors; pooling cls is taken'}".replace('"', "")


def starting_encoder(name: str, language: str) -> StartingEncoder:
    """The encoder of a name or, without one, of a language.

    Raises:
        UserError: an unknown name, a folder without safetensors, files that describe what is not computed here, or none
            of a name of the hub.
    """
    chosen = name or USUAL.get(language, OTHERWISE)
    config, entry = gathered([], ROOT), {}
    known = load_settings(config, ROOT).encoders
    here = chosen in known or Path(chosen).is_dir()
    if not here and HUB.fullmatch(chosen) and (entry := hub_entry(chosen)):
        chosen = chosen.rpartition("/")[2]
    planner = Planner(load_settings(merged(config, {"encoders": {chosen: entry} if entry else {}}), ROOT), Stages())
    stage, vectors = planner.encoder(chosen), towers(planner.ctx, chosen)
    try:
        shape = shape_of(stage, planner.settings.encoders)
    except UserError:
        shape = None
    zero_shot = "pooling" in vectors and (bool(name) or "normalize" in vectors)
    return StartingEncoder(chosen, entry, vectors, shape, zero_shot)


def hub_entry(name: str) -> Raw:
    """The entry of a model on the hub at its current commit, by its small files; empty where they cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(DESCRIBING), etag_timeout=10))
        shape = asdict(Shape.of(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError, KeyError):
        return {}
    shape.pop("positions")
    return {"source": "hub", "name": name, "revision": folder.name, **described_towers(folder), "shape": shape}
