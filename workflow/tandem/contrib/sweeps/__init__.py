"""Sweeps: the same systems at every point of a grid over the configuration's values."""
