"""How the key `lora` has encoders learn, and be saved."""

from tandem.config.training import AdapterCode, register_adapters

register_adapters(
    "lora",
    AdapterCode("contrib.adapters.low_rank:add_lora", "contrib.adapters.low_rank:save_merged"),
)
