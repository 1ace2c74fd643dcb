"""How a text's vector is computed, by the files that sentence-transformers writes beside an encoder's weights."""

import json
from pathlib import Path
from typing import Any

from tandem.errors import UserError

POOLINGS = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean"}
# The inverse of 20, the scale of cosines in sentence-transformers' MultipleNegativesRankingLoss.
TEMPERATURE = 0.05


def described_towers(folder: Path) -> dict[str, Any]:
    """`pooling`, and of a normalised encoder `normalize` and `temperature`; empty where the files do not say.

    Raises:
        UserError: files that are broken, or that describe what this project does not compute.
    """
    listed = folder / "modules.json"
    if not listed.is_file():
        return {}
    modules = _read(listed, list)
    try:
        paths = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    except (KeyError, TypeError):
        raise UserError(f"{listed}: lists no modules with type and path; mend or remove it") from None
    if others := [name for name in paths if name not in ("Transformer", "Pooling", "Normalize")]:
        raise _unknown(listed, f"the module {others[0]}")
    if "Pooling" not in paths:
        raise _unknown(listed, "no Pooling")
    towers: dict[str, Any] = {"pooling": _pooling(folder / paths["Pooling"] / "config.json")}
    return towers | ({"normalize": True, "temperature": TEMPERATURE} if "Normalize" in paths else {})


def _pooling(path: Path) -> str:
    """The pooling of `1_Pooling/config.json`: `pooling_mode`, in older files one switch for each."""
    config = _read(path, dict)
    prefix = "pooling_mode_"
    switched = [key.removeprefix(prefix) for key, on in config.items() if key.startswith(prefix) and on]
    modes = [config["pooling_mode"]] if "pooling_mode" in config else switched
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise _unknown(path, f"the pooling {' + '.join(map(str, modes)) or 'none'}")
    return POOLINGS[modes[0]]


def _read(path: Path, kind: type) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__}); mend it") from None
    if not isinstance(value, kind):
        raise UserError(f"{path}: is no JSON {kind.__name__}; mend it")
    return value


def _unknown(path: Path, what: str) -> UserError:
    hint = "say pooling: cls or mean in an entry of encoders to compute vectors without it"
    return UserError(f"{path}: describes {what}, which is not computed here; {hint}")
