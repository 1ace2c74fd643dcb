"""Stage `encoder`: pin a published encoder. It is copied, checked, and tried on a few texts.

Folders of registered forms are converted here to the form that models load.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from tandem.cluster.progress import warn
from tandem.config.base import Pooling
from tandem.errors import UserError
from tandem.models.described import describe_towers
from tandem.models.encoding import pool_states
from tandem.models.folders import (
    _WEIGHTS_INDEX,
    FOLDER_FORMS,
    WEIGHTS_FILE,
    check_folder,
    check_tokenizer,
    find_encoder_files,
    hash_files,
    hash_weights,
    list_encoder_files,
    list_weight_files,
)
from tandem.models.hub import (
    count_ids,
    fetch_model,
    find_package,
    load_encoder,
    load_tokenizer,
    read_encoder,
)
from tandem.models.pair_prompts import Around
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template
from tandem.stages.training import EncoderParams
from tandem.store.job import Draft, Job, load, writing

_P = TypeVar("_P", bound=EncoderParams)

# the texts' last words are at a third, a quarter, … of the vocabulary
_VOCABULARY_PARTS = (3, 4, 5, 6)
_CLOSE = 1e-5  # vectors that differ by no more count as equal
# number of padding tokens behind a text, and the largest change that they may cause in its own tokens' states
PADDING = 8
BATCHED = 1e-3


def run(job: Job[EncoderParams]) -> None:
    """Copy an encoder's files into `hf/` after checking its weights: stage `encoder`."""
    params = job.params
    source, commit = find_source(job)
    files = find_encoder_files(source)
    check_folder(files)
    check_tokenizer(files)
    weights = hash_weights(source)
    expected = params.sha256
    if expected and weights != expected:
        first, *shards = list_weight_files(files)
        where = f"{first} to {shards[-1].name}" if shards else first
        raise UserError(f"{where}: sha256 is {weights}, expected {expected}")
    require_files(source, params)
    planned = job.execution.vectors
    described = describe_towers(source) if planned else {}
    if described and described != planned:
        keys = ", ".join(f"{key}: {json.dumps(value)}" for key, value in described.items()).replace(
            '"', ""
        )
        entry = f"{{source: hub, name: {params.name}, revision: {params.revision}, {keys}}}"
        raise UserError(f"encoder: {params.name} describes {keys}; name it under encoders: {entry}")
    with writing(job) as draft:
        copy_model(files, draft)
        adopted = [load(form.adopt)(source, draft.folder / "hf") for form in FOLDER_FORMS.values()]
        if params.layers:
            copied = list_weight_files(draft.folder / "hf")
            load_encoder(source, params.layers).save_pretrained(draft.folder / "hf")
            # remove the shards, which are now one file
            for path in (*copied, draft.folder / "hf" / _WEIGHTS_INDEX):
                if path.name != WEIGHTS_FILE:
                    path.unlink(missing_ok=True)
        pooling = planned["pooling"] if planned and "representation" not in planned else ""
        unread = check_encoder(draft.folder / "hf", source, str(pooling))
        if unread and not any(adopted):
            others = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
            warn(
                job,
                draft,
                f"{source}: no layer of the encoder reads {unread[0]}{others}; vectors are without them",
            )
        record_origin(job, draft, weights, commit)


def find_source(job: Job[_P]) -> tuple[Path, str | None]:
    """Return the folder of a published model, fetched first from the hub, and its commit there."""
    params = job.params
    match params.source:
        case "hub":
            return fetch_model(str(params.name), str(params.revision))
        case "package":
            return find_package(str(params.package), str(params.folder)), None
        case _:
            return Path(str(job.execution.path)), None


def require_files(source: Path, params: EncoderParams) -> None:
    """Refuse a folder whose files, except the weights, have changed since the run was planned."""
    expected = params.files_sha256
    if not expected:
        return
    digest = hash_files(source)
    if digest != expected:
        raise UserError(
            f"{source}: sha256 of its other files is {digest}, expected {expected}; start again"
        )


def copy_model(source: Path, draft: Draft) -> None:
    """Copy a model's files into `hf/` of an artifact, with its weights under whatever names."""
    files = set(list_weight_files(source))
    for pattern in list_encoder_files():
        files |= set(source.glob(pattern))
    for path in sorted(files):
        shutil.copyfile(path, draft.path(f"hf/{path.relative_to(source)}"))


def record_origin(job: Job[_P], draft: Draft, weights: str, commit: str | None) -> None:
    """Write down which weights these are and of which commit; warn of a revision that may move."""
    params = job.params
    draft.facts |= {"weights_sha256": weights, "hub_commit": commit}
    if commit and commit != params.revision:
        pin = f"pin it by tandem prefetch, or revision: {commit}"
        warn(job, draft, f"{params.name} is what {params.revision} was: {pin}")


def check_encoder(folder: Path, source: Path, pooling: str = "") -> list[str]:
    """Check that the model in a copy of `source` returns one vector per token, and can be pooled by `pooling`.

    Returns the names of the weights that the encoder leaves out; see `read_encoder`.
    """
    try:
        model, unread = read_encoder(folder)
        tokenizer = load_tokenizer(folder)
    except UserError as error:  # name the source: a user mends nothing in a copy that failed
        raise UserError(str(error).replace(str(folder), str(source))) from None
    model.eval()
    kind = model.config.model_type
    if model.config.is_encoder_decoder:
        raise UserError(f"{source}: {kind} has a decoder; only encoders are taken")
    try:
        rows = model.get_input_embeddings().weight.shape[0]
        size = model.config.hidden_size
    except (AttributeError, RuntimeError):  # transformers' errors for a model of texts and pictures
        raise UserError(
            f"{source}: {kind} is not an encoder of texts alone; choose one of texts"
        ) from None
    needed = count_ids(tokenizer)
    if needed > rows:
        raise UserError(
            f"{source}: the tokenizer needs vectors for {needed} ids, the model has {rows}"
        )
    special = set(tokenizer.all_special_ids)
    if len(tokenizer) <= len(special):
        hint = "copy the tokenizer's files that belong to the weights"
        raise UserError(
            f"{source}: its tokenizer has no word, only {len(special)} special tokens; {hint}"
        )
    if tokenizer.cls_token and tokenizer.sep_token and not any(Template.of(tokenizer).single):
        problem = (
            f"has {tokenizer.cls_token} and {tokenizer.sep_token}, but puts neither around a text"
        )
        raise UserError(f"{source}: its tokenizer {problem}; mend post_processor in tokenizer.json")
    inputs = tokenizer("a", "b", return_tensors="pt")
    longer = {name: nn.functional.pad(row, (0, PADDING)) for name, row in inputs.items()}
    try:
        with torch.inference_mode():
            states, padded = (model(**rows).last_hidden_state for rows in (inputs, longer))
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{source}: {kind} does not work as an encoder: {reason}") from None
    length = inputs["input_ids"].shape[1]
    shape = tuple(states.shape)
    if shape != (1, length, size):
        raise UserError(f"{source}: {kind} does not give one vector for each token, but {shape}")
    _check_finite(states, model, source)
    if not torch.allclose(states, padded[:, :length], rtol=BATCHED, atol=BATCHED):
        problem = "reads the padding behind a text, so its vectors depend on the texts beside it"
        raise UserError(f"{source}: {kind} {problem}; choose an encoder of another family")
    check_pooling(model, pooling, folder, source)
    return unread


def _check_finite(states: Tensor, model: Any, where: Path) -> None:
    """Refuse states of a text, or its vector, that hold NaN or infinity."""
    if not bool(states.isfinite().all()):
        broken = [
            name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())
        ]
        cause = f"so does {broken[0]} among its weights" if broken else "though its weights do not"
        value = "nan" if bool(states.isnan().any()) else "inf"
        raise UserError(
            f"{where}: the vector of a text holds {value}, {cause}; fetch or save the model anew"
        )


def check_pairs(folder: Path) -> None:
    """Refuse a cross-encoder's tokenizer that puts nothing between two texts: query and passage would run together."""
    if not Template.of(load_tokenizer(folder)).pair[1]:
        problem = (
            "puts no token between two texts, so a cross-encoder cannot tell query from passage"
        )
        raise UserError(
            f"{folder}: its tokenizer {problem}; choose another, or mend post_processor in tokenizer.json"
        )


def check_pooling(
    model: Any,
    pooling: str,
    folder: Path,
    name: Path | None = None,
    around: Around | None = None,
) -> None:
    """Refuse a pooling that gives different texts the same vector, or NaN, or needs a token that is not added.

    The first token of a causal model sees nothing of the text, nor does any special token of an encoder without layers.

    Args:
        model: the encoder of `folder`, which messages call `name`, on any device.
        pooling: one of `pool_states`; others, which read pairs, are not checked.
        around: ids of a prompt, which is read before a text; None: the tokenizer's special tokens are read there.
    """
    if pooling not in get_args(Pooling):
        return
    tokenizer = load_tokenizer(folder)
    where = f"{name or folder}: pooling is {pooling}"
    template = Template.of(tokenizer)
    others = ", ".join(name for name in get_args(Pooling) if name != pooling)
    hint = f"say pooling: whatever the model was trained with ({others}), in its entry of encoders"
    if around:
        before = (*around.query, *around.passages[0])
        template = replace(template, single=(before, around.after))
    elif pooling == "cls" and not template.single[0]:
        raise UserError(f"{where}, but its tokenizer puts no token before a text; {hint}")
    words = sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids))
    if not words:
        # a vocabulary of only special tokens: its encoder reads words by their characters
        return
    middle = words[len(words) // 2]
    texts = Ragged.of(
        [np.array([middle, words[len(words) // part]], np.int64) for part in _VOCABULARY_PARTS]
    )
    inputs = {
        key: value.to(model.device)
        for key, value in template.single_inputs(texts).to_tensors().items()
    }
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        vectors = pool_states(
            model.eval()(**inputs).last_hidden_state, inputs["attention_mask"], pooling
        )
    _check_finite(vectors, model, name or folder)
    if torch.allclose(vectors, vectors[:1].expand_as(vectors), rtol=_CLOSE, atol=_CLOSE):
        token = "the first token" if pooling == "cls" else "what it pools"
        raise UserError(
            f"{where}, but {token} of {model.config.model_type} sees nothing of the text; {hint}"
        )
