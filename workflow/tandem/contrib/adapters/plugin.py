"""How the key `lora` has encoders learn, and be saved."""

from tandem.config.training import AdapterCode, register_adapters

register_adapters(
    "lora",
    AdapterCode(
        add="contrib.adapters.low_rank:add_lora",
        save="contrib.adapters.low_rank:save_merged",
        mark="lora_A",
    ),
)
