"""Freeze the lower layers of an encoder, drop its upper layers, and set its dropout."""

from typing import Any

from torch import nn

from tandem.errors import UserError
from tandem.models.hub import cut_configuration


def list_learning_encoders(models: nn.Module) -> list[Any]:
    """Return the encoders in some models, without their heads; frozen ones (a static teacher) are left out."""
    from transformers import PreTrainedModel

    encoders = list[Any]()
    # the stacks of an encoder with a decoder are models of transformers, too
    within = set[nn.Module]()
    for part in models.modules():
        if isinstance(part, PreTrainedModel) and part.base_model is part and part not in within:
            encoders.append(part)
            within.update(part.modules())
    return [
        encoder
        for encoder in encoders
        if any(weights.requires_grad for weights in encoder.parameters())
    ]


# Names of the modules that follow an encoder's last layer.
_MODULES_AFTER_LAYERS = ("pooler", "final_norm", "final_layer_norm", "norm")


def freeze_layers(models: nn.Module, count: int) -> None:
    """Freeze the embeddings and the `count` lowest layers of every encoder.

    Everything above them learns: the other layers, modules after the last layer, a decoder, and heads. The backward
    pass ends at the first layer that learns. Frozen layers keep their dropout.

    Raises:
        UserError: an encoder has no more layers, or its layers share their weights.
    """
    for model in list_learning_encoders(models):
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model
        size = encoder.config.num_hidden_layers
        family = encoder.config.model_type
        stack, layers = find_layers(encoder)
        if layers is None:
            raise UserError(
                f"train.freeze_layers is {count}, but layers of {family} share their weights; set it to 0"
            )
        if count >= size:
            raise UserError(
                f"train.freeze_layers is {count}, but the encoder has {size} layers; allowed: below {size}"
            )
        encoder.requires_grad_(False)
        layers[count:].requires_grad_(True)
        holder = encoder.get_submodule(stack.rpartition(".")[0])
        for module in (encoder, holder):
            for name in _MODULES_AFTER_LAYERS:
                after = getattr(module, name, None)
                if after is not None:
                    after.requires_grad_(True)


def find_layers(encoder: Any) -> tuple[str, nn.ModuleList | None]:
    """Return the name and the list of an encoder's layers; an empty name and None where they share their weights."""
    for name, module in encoder.named_modules():
        # CharacterBERT's embeddings have lists of modules, too, which may be as long
        if name.startswith("embeddings."):
            continue
        if isinstance(module, nn.ModuleList) and len(module) == encoder.config.num_hidden_layers:
            return name, module
    return "", None


def keep_layers(encoder: Any, count: int) -> None:
    """Keep only an encoder's `count` first layers, in place, and note it in its configuration.

    Raises:
        UserError: it has no more than that, or its layers share their weights.
    """
    name, layers = find_layers(encoder)
    size, family = encoder.config.num_hidden_layers, encoder.config.model_type
    if layers is None:
        raise UserError(
            f"query_layers is {count}, but layers of {family} share their weights; leave it out"
        )
    if count >= size:
        raise UserError(
            f"query_layers is {count}, but the encoder has {size} layers; allowed: below {size}"
        )
    encoder.set_submodule(name, layers[:count])
    cut_configuration(encoder.config, count)


def set_dropout(models: nn.Module, probability: float | None) -> None:
    """Set every dropout's probability; None leaves the encoder's own.

    Families keep it in three places: in `nn.Dropout` modules, in numbers that attention reads (ModernBERT, NomicBERT:
    `attention_dropout`), and as `nn.Identity` if the configuration had 0 (ModernBERT: `out_drop`).
    """
    if probability is None:
        return
    for module in list(models.modules()):
        if isinstance(module, nn.Dropout):
            module.p = probability
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Identity) and "drop" in name and probability:
                setattr(module, name, nn.Dropout(probability))
        for name, value in list(vars(module).items()):
            if name.endswith("dropout") and type(value) in (int, float):
                setattr(module, name, probability)
