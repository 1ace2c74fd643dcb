"""Checks of a collection for likely mistakes: languages that do not fit, and queries that find themselves."""
