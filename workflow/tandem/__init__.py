"""Tandem: passage-retrieval experiments as one graph of cached, verified stages."""

__version__ = "0.1.0"
