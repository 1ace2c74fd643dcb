"""What of an encoder learns: low-rank adapters, by `peft`, or its upper layers alone. Also its dropout.

LoRA: h = W x + (alpha / rank) · B A x; W stays, A starts random and B zero (Hu et al. 2021, §4.1). Saving adds
(alpha / rank) · B A to W.
"""

import copy
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from tandem.config.training import Lora
from tandem.errors import UserError
from tandem.models.hub import cut_configuration
from tandem.store.files import write_json


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


def add_lora(models: nn.Module, params: Lora) -> None:
    """Freeze every encoder that learns and add adapters, drawn from torch's generator; a head goes on learning."""
    from peft import LoraConfig, inject_adapter_in_model

    for encoder in list_learning_encoders(models):
        linear = {
            name.split(".")[-1]
            for name, module in encoder.named_modules()
            if isinstance(module, nn.Linear)
        }
        if not linear:
            raise UserError(
                "lora is set, but the encoder has no linear layer (layers: 0); leave it out"
            )
        unknown = sorted(set(params.targets or ()) - linear)
        if unknown:
            raise UserError(
                f"lora.targets: {unknown[0]} is not a linear layer; allowed: {', '.join(sorted(linear))}"
            )
        config = LoraConfig(
            r=params.rank,
            lora_alpha=params.alpha,
            lora_dropout=params.dropout,
            target_modules=list(params.targets) if params.targets else "all-linear",
        )
        inject_adapter_in_model(config, encoder)


# What encoders name that follows their last layer.
_MODULES_AFTER_LAYERS = ("pooler", "final_norm", "final_layer_norm", "norm")


def freeze_layers(models: nn.Module, count: int) -> None:
    """Let only the layers above the `count` lowest of every encoder learn, what follows the last one, and heads.

    Embeddings are frozen too, positions included: the backward pass ends where the first layer that learns begins.
    Dropout goes on in what is frozen. A `UserError` if an encoder has no more layers, or they share their weights.
    """
    for encoder in list_learning_encoders(models):
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


def merge_lora(encoder: Any) -> Any:
    """Return a copy with plain layers of W + (alpha / rank) · B A; the encoder itself where it has no adapter."""
    adapted = [name for name, module in encoder.named_modules() if hasattr(module, "lora_A")]
    plain = copy.deepcopy(encoder) if adapted else encoder
    for name in adapted:
        layer = plain.get_submodule(name)
        layer.merge()
        plain.set_submodule(name, layer.get_base_layer())
    return plain


def save_adapter(encoder: Any, folder: Path) -> None:
    """Write the adapter alone, as `peft.PeftModel.from_pretrained` loads it onto what the training started from."""
    folder.mkdir(parents=True, exist_ok=True)
    learned = {
        name: p.detach().cpu().contiguous()
        for name, p in encoder.named_parameters()
        if ".lora_" in name
    }
    tensors = {
        f"base_model.model.{name.replace('.default.', '.')}": tensor
        for name, tensor in learned.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    # around a model that predicts tokens the adapter is known to the encoder within
    config = encoder.base_model.peft_config["default"].to_dict()
    plain = {
        name: sorted(value) if isinstance(value, set) else value for name, value in config.items()
    }
    write_json(folder / "adapter_config.json", dict(sorted(plain.items())))


def find_layers(encoder: Any) -> tuple[str, nn.ModuleList | None]:
    """Return the name and the list of an encoder's layers; an empty name and None where they share their weights."""
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == encoder.config.num_hidden_layers:
            return name, module
    return "", None


def keep_layers(encoder: Any, count: int) -> None:
    """Keep only an encoder's `count` first layers, in place; its configuration, which is saved with it, says so.

    A `UserError` if it has no more than that, or they share their weights.
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

    Families keep it in three places: `nn.Dropout` modules, plain numbers that attention reads (ModernBERT, NomicBERT:
    `attention_dropout`), and `nn.Identity` where the configuration said 0 (ModernBERT: `out_drop`).
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
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, probability)
