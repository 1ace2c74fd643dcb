"""Parameters of a stage that asks a language model."""

from pathlib import Path

from tandem.errors import UserError
from tandem.extras.language_models.options import HostedModel
from tandem.plan.context import json_of
from tandem.plan.towers import HUB, pinned
from tandem.stages.base import Json
from tandem.store.files import fingerprint


def llm_stage(entry: HostedModel, at: str) -> tuple[Json, Json]:
    """Return the parameters and execution of a stage that asks a language model; `at` is the path of its entry."""
    check_llm(entry, at)
    params: Json = json_of(entry)
    execution: Json = {}
    if entry.endpoint:
        params["url"] = entry.endpoint.url
        execution["endpoint"] = json_of(entry.endpoint)
    elif Path(entry.model).is_dir():
        params["fingerprint"] = fingerprint(Path(entry.model))
    else:
        params["revision"] = pinned(entry.model, entry.revision)
    return params, execution


def check_llm(entry: HostedModel, at: str) -> None:
    """Refuse an entry whose model in this process is neither a folder with safetensors nor a name on the hub."""
    if entry.endpoint:
        return
    folder = Path(entry.model)
    if not folder.is_dir() and not HUB.fullmatch(entry.model):
        raise UserError(
            f"{at}.model is {entry.model}, neither a folder nor organisation/name; or name an endpoint"
        )
    if folder.is_dir() and not list(folder.glob("*.safetensors")):
        raise UserError(f"{at}.model: {folder} holds no safetensors; only these are loaded")
