"""Tandem: passage-retrieval experiments as one graph of cached, verified stages."""

from pathlib import Path

__version__ = "0.2.0.dev0"
PACKAGE = Path(__file__).parent
# a wheel brings the project's files in this folder (build_package.py)
CHECKOUT = not (PACKAGE / "_project").is_dir()
ROOT = PACKAGE.parents[1] if CHECKOUT else PACKAGE / "_project"  # Snakefile, config/, envs/
