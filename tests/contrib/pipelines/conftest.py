"""Choosing a system shares a collection with the tests of fusions."""

from excluding import excluding_dataset, job_on_excluded  # noqa: F401
