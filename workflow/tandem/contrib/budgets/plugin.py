"""Register the steps and sizes of a training that follow from `budget_minutes`."""

from tandem.config.training import FITS

FITS["budget"] = "contrib.budgets.data_sizes:fit_to_budget"
