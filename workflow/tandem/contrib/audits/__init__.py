"""Audits: whether a collection can be trusted, each a stage with a section of the report."""
