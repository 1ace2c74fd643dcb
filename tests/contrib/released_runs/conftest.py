"""Small datasets made by the real stage."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "data"))

from making_datasets import beir, data_folder, make, make_beir, server  # noqa: F401
