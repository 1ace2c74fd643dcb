"""Describe the heads of published cross-encoders from their `config.json`, without torch.

For the families below transformers' `…ForSequenceClassification` computes logits = W₂ activation(W₁ h + b₁) + b₂, one
logit a label, from the first token's vector h (ModernBERT: or the mean of all); ModernBERT normalises before W₂.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.models.described import find_foreign_inputs
from tandem.models.folders import LIBRARY, check_tokenizer, read_model_json, read_optional

CLASSIFIER_SUFFIX = "ForSequenceClassification"
_ACTIVATIONS = ("Sigmoid", "Identity")  # of scores; neither changes a ranking
# names of the label of relevant passages
_RELEVANT_LABELS = ("label_1", "relevant", "yes", "true", "positive", "1")


@dataclass(frozen=True)
class Layers:
    """Name a family's head layers as its weights do, and its activation or the key of `config.json` that sets it."""

    dense: str
    out: str
    activation: str = "tanh"
    norm: str | None = None


POOLER = ("pooler.dense", "classifier")
DENSE = ("classifier.dense", "classifier.out_proj")
HEAD_LAYERS = {
    "albert": Layers("albert.pooler", "classifier"),
    "bert": Layers("bert.pooler.dense", "classifier"),
    "camembert": Layers(*DENSE),
    "deberta-v2": Layers(*POOLER, "pooler_hidden_act"),
    "distilbert": Layers("pre_classifier", "classifier", "relu"),
    "electra": Layers(*DENSE, "gelu"),
    "ernie": Layers("ernie.pooler.dense", "classifier"),
    "modernbert": Layers("head.dense", "classifier", "classifier_activation", norm="head.norm"),
    "mpnet": Layers(*DENSE),
    "nomic_bert": Layers("nomic_bert.pooler.dense", "classifier"),
    "roberta": Layers(*DENSE),
    "xlm-roberta": Layers(*DENSE),
}


def read_saved_activation(folder: Path) -> str | None:
    """Return the activation that a published cross-encoder applies to its scores; None if no file names one.

    Versions of sentence-transformers wrote it to different places; the newest comes first.
    """
    config = read_optional(folder / "config.json")
    described = config.get("sentence_transformers") or {}
    library = read_optional(folder / LIBRARY) if (folder / "modules.json").is_file() else {}
    names = (
        library.get("activation_fn"),
        described.get("activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    )
    return next((str(name) for name in names if name), None)


def check_reranker(folder: Path) -> None:
    """Refuse a folder that holds no published cross-encoder, or one whose scores cannot be computed here."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{path} is missing; a re-ranker is a folder that transformers saved")
    config = read_model_json(path)
    if not (name := read_architecture(config)).endswith(CLASSIFIER_SUFFIX):
        raise UserError(
            f"{path}: architectures is {name}; allowed: …{CLASSIFIER_SUFFIX}, the form of published cross-encoders"
        )
    family = str(config.get("model_type"))
    if family not in HEAD_LAYERS:
        own = "; it needs code of its own, which is never run" if "auto_map" in config else ""
        raise UserError(f"{path}: model_type is {family}{own}; allowed: {', '.join(HEAD_LAYERS)}")
    activation = read_saved_activation(folder)
    if activation is not None and activation.rpartition(".")[2] not in _ACTIVATIONS:
        raise UserError(
            f"{folder}: the activation of scores is {activation}; allowed: {', '.join(_ACTIVATIONS)}"
        )
    if problem := find_foreign_inputs(folder):
        raise UserError(f"{problem[0]}: describes {problem[1]}, which is not computed here")
    beside = folder / LIBRARY
    if prompt := read_optional(beside).get("default_prompt_name"):
        raise UserError(
            f"{beside}: default_prompt_name is {prompt}; re-rankers with a prompt are not computed here"
        )
    find_relevant_label(config, path)
    check_tokenizer(folder)


def read_architecture(config: dict[str, Any]) -> str:
    """Return the class of transformers that a `config.json` names, else "none"."""
    return str((config.get("architectures") or ["none"])[0])


def find_relevant_label(config: dict[str, Any], path: Path) -> int | None:
    """Return which of two labels means relevance, by a `config.json` at `path`; None if there is one label.

    With one label the score is its logit; with two it is the relevant label's logit minus the other's.
    """
    # transformers does not write down two labels without names
    default = {number: f"LABEL_{number}" for number in range(config.get("num_labels") or 2)}
    labels = config.get("id2label") or default
    for number in labels:
        if not str(number).isdecimal():
            raise UserError(f"{path}: id2label has the key {number}; a label's number is needed")
    names = {int(number): str(name) for number, name in labels.items()}
    if len(names) == 1:
        return None
    relevant = [
        number for number, name in names.items() if name.strip().lower() in _RELEVANT_LABELS
    ]
    if len(names) != 2:
        raise UserError(
            f"{path}: has {len(names)} labels; allowed: 1, or 2 of which one is relevance"
        )
    if len(relevant) != 1:
        raise UserError(
            f"{path}: id2label names {' and '.join(names.values())}; one must be: {', '.join(_RELEVANT_LABELS)}"
        )
    return relevant[0]
