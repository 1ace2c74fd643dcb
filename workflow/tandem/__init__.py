"""Tandem: passage-retrieval experiments as one graph of cached, verified stages."""

from pathlib import Path

__version__ = "0.1.0"
ROOT = Path(__file__).parents[2]  # the checkout: config/, envs/, docs/
