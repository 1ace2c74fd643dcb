"""Cross-encoders with the classification head of their family: loading and saving as transformers does.

A linear head on the first token is saved in the same form where the family's activation is tanh, so that
`AutoModelForSequenceClassification` gives the same scores.
"""

import copy
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.heads import FAMILIES, labels_of
from tandem.models.hub import check_folder, loading

# A power of two: what is scaled by it and back loses no bit. tanh(SCALE x) is SCALE x to x² SCALE² / 3: two parts in a
# million for x = 10, two in a hundred thousand for x = 30.
SCALE = 2.0**-12


class Classifier(nn.Module):
    """The head of a `…ForSequenceClassification`, on the pooled vector; see `tandem.models.heads`.

    Args:
        whole: the model, with one label or two.
        path: its `config.json`, for messages.
    Attributes:
        pooling: `cls`, or of ModernBERT perhaps `mean`: the vector that it reads.
    """

    def __init__(self, whole: Any, path: Path) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        config, layers = whole.config, FAMILIES[whole.config.model_type]
        self.labels = labels_of(config.to_dict(), path)
        self.pooling: str = getattr(config, "classifier_pooling", "cls")
        self.dense, self.out = whole.get_submodule(layers.dense), whole.get_submodule(layers.out)
        self.norm = whole.get_submodule(layers.norm) if layers.norm else nn.Identity()
        self.activation: nn.Module = ACT2FN[getattr(config, layers.activation, layers.activation)]
        dropout = getattr(config, "classifier_dropout", None)
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1) if dropout is None else dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits of relevance, shape (pairs, 1), of pooled vectors, shape (pairs, dim)."""
        logits: Tensor = self.out(self.dropout(self.norm(self.activation(self.dense(vectors)))))
        if self.labels.count == 1:
            return logits
        relevant = self.labels.relevant
        return logits[:, relevant : relevant + 1] - logits[:, 1 - relevant : 2 - relevant]

    @classmethod
    def load(cls, folder: Path, new: bool = False) -> tuple[Any, Self]:
        """A folder's encoder and its head, in float32.

        Args:
            new: a head that the folder lacks, or one of several labels, is replaced by one that is drawn from torch's
                generator.
        Raises:
            UserError: the folder has no head, or a family whose head is not known here.
        """
        from transformers import AutoModelForSequenceClassification

        check_folder(folder)
        options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
        options |= {"num_labels": 1, "ignore_mismatched_sizes": True} if new else {}
        with loading(folder):
            whole, info = AutoModelForSequenceClassification.from_pretrained(
                folder, output_loading_info=True, **options
            )
        family = whole.config.model_type
        if family not in FAMILIES:
            raise UserError(f"{folder}: {family} has no head that is known here; allowed: {', '.join(FAMILIES)}")
        if info["missing_keys"] and not new:
            raise UserError(f"{folder}: holds no {min(info['missing_keys'])}: a re-ranker needs its whole head")
        head, encoder = cls(whole, folder / "config.json"), whole.base_model
        if FAMILIES[family].dense.startswith(f"{whole.base_model_prefix}.pooler"):
            encoder.pooler = None  # the head's own layer now
        return encoder, head


def save_whole(encoder: Any, folder: Path, head: nn.Module, pooling: str) -> None:
    """Write an encoder and its head as one `…ForSequenceClassification`.

    Where the family's head cannot compute what the head does, an empty tensor takes its place:
    `AutoModelForSequenceClassification` then refuses the folder instead of drawing a head at random, and `AutoModel`
    does not see it.
    """
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoModelForSequenceClassification

    config = copy.deepcopy(encoder.config)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        encoder.save_pretrained(folder)
        return
    if not isinstance(head, Classifier):
        config.num_labels = 1
    with torch.device("meta"):
        whole = AutoModelForSequenceClassification.from_config(config)
    prefix = f"{whole.base_model_prefix}."
    weights = {f"{prefix}{name}": tensor.cpu().contiguous() for name, tensor in encoder.state_dict().items()}
    if own := head_weights(head, pooling, config.model_type):
        whole.load_state_dict(weights | own, assign=True)
        whole.save_pretrained(folder)
        return
    outside = [name for name, layer in whole.named_modules() if isinstance(layer, nn.Linear) and prefix not in name]
    encoder.save_pretrained(folder, state_dict=weights | {f"{outside[-1]}.weight": torch.empty(0)})


def head_weights(head: nn.Module, pooling: str, family: str) -> dict[str, Tensor] | None:
    """A head's weights by their names in its family's `…ForSequenceClassification`; None where that cannot compute it.

    A linear head on the first token is W h + b = (W / SCALE) tanh(SCALE h) + b, within rounding.
    """
    layers = FAMILIES.get(family)
    if layers is None:
        return None
    if isinstance(head, Classifier):
        names = {"dense": layers.dense, "out": layers.out, "norm": layers.norm}
        parts = [(*name.partition("."), tensor) for name, tensor in head.state_dict().items()]
        return {f"{names[part]}.{name}": tensor.cpu() for part, _, name, tensor in parts}
    if not isinstance(head, nn.Linear) or pooling != "cls" or layers.activation != "tanh":
        return None
    size, weight, bias = head.in_features, head.weight.detach().cpu(), head.bias.detach().cpu()
    first = {f"{layers.dense}.weight": SCALE * torch.eye(size), f"{layers.dense}.bias": torch.zeros(size)}
    return first | {f"{layers.out}.weight": weight / SCALE, f"{layers.out}.bias": bias}
