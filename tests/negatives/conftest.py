"""A run over the train queries of the tiny collection, and training lists drawn from it."""

from listed import dev_run, train_run  # noqa: F401
