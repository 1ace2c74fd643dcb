"""Register the functions by which the key `lora` adds adapters to encoders and saves them."""

from tandem.config.training import AdapterCode, register_adapters

register_adapters(
    "lora",
    AdapterCode(
        add="contrib.adapters.low_rank:add_lora",
        save="contrib.adapters.low_rank:save_merged",
        mark="lora_A",
    ),
)
