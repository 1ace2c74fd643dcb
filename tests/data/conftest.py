"""Small datasets made by the real stage."""

from making_datasets import beir, data_folder, make, make_beir, server  # noqa: F401
