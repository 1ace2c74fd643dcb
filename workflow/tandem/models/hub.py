"""Fetch, load and save encoders as Hugging Face folders: safetensors only, no remote code, no progress bars."""

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tandem.cluster import faults
from tandem.config.training import ADAPTERS
from tandem.errors import UserError
from tandem.models.folders import (
    WEIGHTS_FILE,
    check_folder,
    list_fetched_files,
    list_own_files,
    read_optional,
)
from tandem.registry import Registry
from tandem.store.job import load

# Maps the `model_type` of a family that transformers does not know to a function that registers the family there.
encoder_family: Registry[Callable[[], None]] = Registry(
    "family of encoders", "encoder_family", "models"
)
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
# Heads that transformers puts on encoders for its tasks: vectors of texts need none of them.
_HEADS = {
    "classification_head",
    "classifier",
    "cls",
    "decoder",
    "discriminator_predictions",
    "generator_lm_head",
    "generator_predictions",
    "head",
    "lm_head",
    "lm_loss",
    "lm_predictions",
    "mask_predictions",
    "pooler",
    "pre_classifier",
    "pred_layer",
    "predictions",
    "qa_outputs",
    "score",
    "shared",
    "sop_classifier",
    "vocab_layer_norm",
    "vocab_projector",
    "vocab_transform",
}
# Classes of tokenizers that heeded `add_eos_token` before transformers 5.
_ENDING_TOKENIZERS = ("CodeLlamaTokenizer", "CohereTokenizer", "GemmaTokenizer", "LlamaTokenizer")
# model type of transformers' pair of an encoder and a decoder, each with a configuration of its own
ENCODER_DECODER = "encoder-decoder"
# Weights of encoders that have a folder for each side.
_TOWER_FILES = tuple(f"{side}*/{WEIGHTS_FILE}" for side in ("query", "document", "passage"))


@cache
def find_package(package: str, folder: str) -> Path:
    """Return the folder inside an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"encoder: the package {package} is not installed; pip install it or choose another encoder"
        )
    return Path(spec.submodule_search_locations[0]) / folder


def fetch_model(name: str, revision: str) -> tuple[Path, str]:
    """Return the folder and the commit of a hub model's files at a revision, from the local cache or the network."""
    folder = _fetch_snapshot(name, revision, [*list_fetched_files(), *_TOWER_FILES])
    return folder, folder.name


def fetch_description(name: str, revision: str, fetch: bool) -> Path | None:
    """Return the folder of a hub model's files without its weights, from the cache or, with `fetch`, the network."""
    try:
        patterns = ["*.json", *list_own_files()]
        return _fetch_snapshot(name, revision, patterns, local_files_only=not fetch)
    except UserError:
        if fetch:
            raise
        return None


def _fetch_snapshot(name: str, revision: str, patterns: list[str], **options: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"encoder: cannot fetch {name} at {revision} from the hub: {reason}"
        ) from None


@contextmanager
def report_loading(folder: Path) -> Iterator[None]:
    """Report in one line what transformers cannot load, and nothing else: no progress bars, no load reports."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except StrictDataclassError as error:  # a value of config.json, named in its second line
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{folder}: transformers cannot load it: {reason}") from None
    except (ValueError, KeyError, ImportError, OSError, SafetensorError) as error:
        if faults.explain_fault(error):
            raise
        if "trust_remote_code" in str(error):
            hint = "choose a model of a family that transformers knows by itself"
            raise UserError(
                f"{folder}: needs code of its own, which is never run (trust_remote_code); {hint}"
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        cut = isinstance(error, SafetensorError)
        hint = (
            "; fetch its weights again: the download is not whole, or brought a pointer of git lfs"
            if cut
            else ""
        )
        raise UserError(f"{folder}: transformers cannot load it: {reason}{hint}") from None


def load_tokenizer(folder: Path) -> Any:
    """Return the folder's fast tokenizer; it ends a text with the token that `tokenizer_config.json` promises.

    transformers 5 reads `add_eos_token` only if there is no `tokenizer.json`. In earlier versions, tokenizers of
    `_ENDING_TOKENIZERS` and those with code of their own added the token, and models were trained with it.
    """
    from transformers import AutoTokenizer

    with report_loading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
    config = read_optional(folder / "tokenizer_config.json")
    name = str(config.get("tokenizer_class")).removesuffix("Fast")
    if (
        config.get("add_eos_token")
        and tokenizer.eos_token
        and (name in _ENDING_TOKENIZERS or "auto_map" in config)
    ):
        around = tokenizer("a")["input_ids"]
        if around[-1] != tokenizer.eos_token_id:
            tokenizer.add_bos_token = around[0] == tokenizer.bos_token_id
            tokenizer.add_eos_token = True
    return tokenizer


def count_ids(tokenizer: Any) -> int:
    """Return how many ids a tokenizer needs vectors for: one more than its largest, for ids may leave gaps."""
    largest: int = max(tokenizer.get_vocab().values())
    return largest + 1


def add_markers(tokenizer: Any, markers: Mapping[str, str]) -> None:
    """Make a tokenizer read each side's marker as one special token: an entry of its vocabulary, else a new one."""
    from tokenizers import AddedToken

    named = [markers[side] for side in ("query", "passage") if side in markers]
    tokens = [AddedToken(marker, normalized=False, special=True) for marker in named]
    tokenizer.add_tokens(tokens, special_tokens=True)


def hash_tokenizer(text: str) -> str:
    """Return sha256 of a fast tokenizer's `tokenizer.json`, without truncation and padding, which the last call set."""
    parts = {
        name: part
        for name, part in json.loads(text).items()
        if name not in ("truncation", "padding")
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def from_folder(auto: Any, folder: Path, **options: Any) -> tuple[Any, Any]:
    """Return a folder's model by a class of transformers, in float32, and the report on its weights.

    See `check_weights`.
    """
    import torch

    check_folder(folder)
    options |= {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    options["ignore_mismatched_sizes"] = True
    with report_loading(folder):
        model, report = auto.from_pretrained(folder, output_loading_info=True, **options)
    return model, report


def check_weights(folder: Path, report: Any, missing: Sequence[str] = ()) -> None:
    """Refuse weights of another shape than in `config.json`, and missing ones: transformers draws them at random."""
    wrong = sorted(str(key[0]) for key in report["mismatched_keys"])
    if missing or wrong:
        problem = f"lack {missing[0]}" if missing else f"hold {wrong[0]} of another shape"
        count = len(missing) + len(wrong) - 1
        more = f" and {count} more" if count else ""
        own = "auto_map" in read_optional(folder / "config.json")
        hint = (
            "they are of code of its own, which is never run"
            if own
            else "copy the files that belong together"
        )
        raise UserError(f"{folder}: its weights {problem}{more}, by config.json; {hint}")


def _check_code(config: Any, folder: Path) -> None:
    """Refuse a decoder with code of its own whose configuration does not state whether it is causal.

    transformers' own class would be causal. But in some such models (GTE Qwen, Stella) the code lets every token see
    the whole text, and nothing else shows this.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    decodes = (
        type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
        and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    )
    code = (getattr(config, "auto_map", None) or {}).get("AutoModel")
    if decodes and code and not hasattr(config, "is_causal"):
        hint = "say in config.json, of a copy, whether a token sees what follows (is_causal: false) or not (true)"
        raise UserError(f"{folder}: needs code of its own ({code}), which is never run; {hint}")


def load_encoder(folder: Path, layers: int | None = None) -> Any:
    """Return the folder's encoder without a task head, in float32; with `layers` only so many of its first layers."""
    return read_encoder(folder, layers)[0]


def read_encoder(folder: Path, layers: int | None = None) -> tuple[Any, list[str]]:
    """Return the encoder of `load_encoder`, and the names of weights that it leaves out, like those of ANCE's layer.

    Heads of transformers' tasks are left out as well, and not named.
    """
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_TEXT_ENCODING_MAPPING,
        MODEL_MAPPING,
    )

    check_folder(folder)
    family = str(read_optional(folder / "config.json").get("model_type"))
    if family in encoder_family:
        encoder_family[family]()
    config = load_configuration(folder)
    _check_code(config, folder)
    if config.model_type == ENCODER_DECODER:
        return _read_encoder_alone(folder, layers), []
    # for T5 and its relatives, only the encoder
    texts, whole = (
        names.get(type(config), None) for names in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING)
    )
    auto = AutoModel if texts in (None, whole) else AutoModelForTextEncoding
    options: dict[str, object] = {}
    if config.model_type == "big_bird":
        # The model gives up sparse attention for good at the first short batch: vectors would depend on earlier ones.
        config.attention_type = "original_full"
        options["config"] = config
    if layers is not None:
        options["config"] = _keep_first_layers(config, folder, layers)
    try:
        model, report = from_folder(auto, folder, add_pooling_layer=False, **options)
    except TypeError:  # families without a pooling layer do not take the option
        model, report = from_folder(auto, folder, **options)
    check_weights(
        folder,
        report,
        sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")),
    )
    # unexpected keys within the encoder's own parts are buffers of older versions
    known = {*_HEADS, *dict(model.named_children())}
    names = {
        name: name.removeprefix(f"{model.base_model_prefix}.").split(".")[0]
        for name in report["unexpected_keys"]
    }
    return model, sorted(name for name, part in names.items() if part not in known)


def _read_encoder_alone(folder: Path, layers: int | None) -> Any:
    """Return the encoder of a pair of an encoder and a decoder, without a pooling layer."""
    from transformers import AutoModelForSeq2SeqLM

    if layers is not None:
        raise UserError(
            f"encoder: layers is {layers}, but {folder} is an encoder with a decoder; leave it out"
        )
    pair, report = from_folder(AutoModelForSeq2SeqLM, folder)
    check_weights(folder, report, sorted(report["missing_keys"]))
    pair.encoder.pooler = None
    return pair.encoder


def load_configuration(folder: Path, layers: int | None = None) -> Any:
    """Return a folder's configuration of transformers; with `layers`, cut to so many of its first layers."""
    from transformers import AutoConfig

    with report_loading(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return config if layers is None else _keep_first_layers(config, folder, layers)


def _keep_first_layers(config: Any, folder: Path, layers: int) -> Any:
    """Return a folder's configuration, cut to its first layers."""
    whole = config.num_hidden_layers
    if layers > whole:
        raise UserError(f"encoder: layers is {layers}, but {folder} has {whole}")
    cut_configuration(config, layers)
    return config


def cut_configuration(config: Any, layers: int) -> None:
    """Cut a configuration to an encoder's first layers, in place; lists `layer…` with an entry per layer, too."""
    whole = config.num_hidden_layers
    config.num_hidden_layers = layers
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == whole and name.startswith("layer"):
            setattr(config, name, value[:layers])


def check_length(model: Any, tokens: int, what: str) -> None:
    """Refuse inputs of more tokens, special ones included, than the model has positions for."""
    if getattr(model.config, "model_type", None) == ENCODER_DECODER:
        model = model.encoder
    config = model.config
    limit = getattr(config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if limit and name.endswith("position_embeddings") and padding is not None:
            limit -= padding + 1  # the RoBERTa family's positions start after the padding's number
    if limit and tokens > limit:
        raise UserError(
            f"{what} allows inputs of {tokens} tokens; the model ({config.model_type}) takes {limit}"
        )


def save_encoder(
    encoder: Any, tokenizer: Any, folder: Path, save: Callable[[Any, Path], None] | None = None
) -> None:
    """Write an encoder and its tokenizer for transformers; adapters are merged, and also written next to it.

    `save` writes the merged encoder into the folder; if it is None, transformers does.
    """
    plain = encoder
    for adapters in ADAPTERS.values():
        if any(hasattr(module, adapters.mark) for module in encoder.modules()):
            plain = load(adapters.save)(plain, folder)
    if save is None:
        plain.save_pretrained(folder)
    else:
        save(plain, folder)
    if tokenizer.pad_token is None:  # other libraries pad by a token
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
