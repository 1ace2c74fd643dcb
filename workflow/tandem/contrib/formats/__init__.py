"""Formats of datasets that the papers' tables do not need, and published collections in these formats."""
