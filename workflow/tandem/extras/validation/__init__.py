"""Validation within a training: the data and the measuring. Packages and estimates share them."""
