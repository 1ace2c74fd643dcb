"""Register the provider of further measures."""

from tandem.stages.evaluation import MEASURE_PROVIDERS

MEASURE_PROVIDERS["review"] = "contrib.measures.review_measures:Provider"
