"""Sweeps: the same systems at every point of a grid, as a table and as plots."""
