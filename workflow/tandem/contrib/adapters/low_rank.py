"""Low-rank adapters (LoRA) of encoders, by `peft`.

h = W x + (alpha / rank) · B A x; W is frozen, A starts random and B zero (Hu et al. 2021, §4.1). Saving adds
(alpha / rank) · B A to W. With `bits`, W is stored in four bits, and the saved model has the W that these represent.
"""

import copy
import logging
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from tandem.config.training import Lora
from tandem.errors import UserError
from tandem.models.learning import list_learning_encoders
from tandem.store.files import write_json


def add_lora(models: nn.Module, params: Lora) -> None:
    """Freeze every encoder that learns and add adapters, drawn by torch's generator; a head continues to learn."""
    # bitsandbytes, which peft imports, logs a request for a package for a layout of weights that is not used here
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
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
        if params.bits:
            from tandem.contrib.adapters.four_bits import store_in_four_bits

            store_in_four_bits(encoder)
        # by this attribute, peft chooses the adapter for such layers
        encoder.is_loaded_in_4bit = params.bits == 4
        inject_adapter_in_model(config, encoder)
        del encoder.is_loaded_in_4bit


def merge_lora(encoder: Any) -> Any:
    """Return a copy of an encoder with adapters, with plain layers of W + (alpha / rank) · B A."""
    adapted = [name for name, module in encoder.named_modules() if hasattr(module, "lora_A")]
    merged = copy.deepcopy(encoder)
    for name in adapted:
        layer = merged.get_submodule(name)
        plain = layer.get_base_layer()
        if hasattr(plain, "restore"):
            # peft's own merging would round the sum to four bits again
            plain = plain.restore()
            plain.weight.data += layer.get_delta_weight("default").detach()
        else:
            layer.merge()
        merged.set_submodule(name, plain)
    for name, layer in list(merged.named_modules()):
        if hasattr(layer, "restore"):
            merged.set_submodule(name, layer.restore())
    return merged


def save_merged(encoder: Any, folder: Path) -> Any:
    """Return an encoder with its adapters merged, in the form that is saved; write the adapters to `adapter/`."""
    save_adapter(encoder, folder / "adapter")
    return merge_lora(encoder)


def save_adapter(encoder: Any, folder: Path) -> None:
    """Write only the adapter; `peft.PeftModel.from_pretrained` loads it onto the model that training started from."""
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
    # in a model that predicts tokens, the encoder inside it has the adapter's configuration
    config = encoder.base_model.peft_config["default"].to_dict()
    plain = {
        name: sorted(value) if isinstance(value, set) else value for name, value in config.items()
    }
    write_json(folder / "adapter_config.json", dict(sorted(plain.items())))
