"""Dropout of a whole model, whatever its family keeps it in."""

from torch import nn


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
