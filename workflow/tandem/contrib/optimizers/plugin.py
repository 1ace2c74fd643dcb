"""Register LAMB and Adafactor."""

from tandem.config.training import OPTIMIZERS

OPTIMIZERS["lamb"] = "contrib.optimizers.lamb:make_lamb"
OPTIMIZERS["adafactor"] = "contrib.optimizers.lamb:make_adafactor"
