"""Stage `encoder`: fetch a starting encoder and pin it as a local Hugging Face folder.

Sources: `package` (an installed Python package that carries a model), `folder` (yours) and `hub` (a Hugging Face name
at a revision). Weights must be safetensors; a given sha256 must match. `layers` keeps the first layers alone. A model
that does not give one vector for each token is refused here, before anything is trained from it.
"""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

from tandem.config.execution import Execution
from tandem.errors import UserError
from tandem.models.hub import check_encoder, check_folder, load_encoder
from tandem.store.files import sha256
from tandem.store.job import Job, writing

# Everything a tokenizer or a configuration may need; weights other than safetensors are never taken.
FILES = ("*.json", "*.txt", "*.model", "model.safetensors")


def package_folder(package: str, folder: str) -> Path:
    """The folder inside an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"encoder: the package {package} is not installed; pip install it or choose another encoder")
    return Path(spec.submodule_search_locations[0]) / folder


def download(name: str, revision: str) -> tuple[Path, str]:
    """A hub model's files at a revision, from the local cache or the network.

    Returns:
        The snapshot's folder and the commit it stands for.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"encoder: cannot fetch {name} at {revision} from the hub: {reason}") from None
    return folder, folder.name


def locate(params: dict[str, Any], execution: Execution) -> tuple[Path, str | None]:
    """The folder that holds the encoder, and the hub's commit if it comes from there."""
    match params["source"]:
        case "package":
            return package_folder(params["package"], params["folder"]), None
        case "folder":
            return Path(str(execution.path)), None
        case _:
            return download(params["name"], params["revision"])


def run(job: Job) -> None:
    """Copy the encoder's files into `hf/` after checking its weights."""
    source, commit = locate(job.params, job.execution)
    check_folder(source)
    weights, expected = sha256(source / "model.safetensors"), job.params.get("sha256")
    if expected and weights != expected:
        raise UserError(f"{source / 'model.safetensors'}: sha256 is {weights}, expected {expected}")
    with writing(job) as draft:
        for pattern in FILES:
            for path in sorted(source.glob(pattern)):
                shutil.copyfile(path, draft.path(f"hf/{path.name}"))
        if job.params.get("layers"):
            load_encoder(source, job.params["layers"]).save_pretrained(draft.folder / "hf")
        check_encoder(draft.folder / "hf", source)
        draft.facts |= {"weights_sha256": weights, "hub_commit": commit}
