"""Audits: whether a collection can be trusted. Each is a stage with a section of the report."""
