"""A small finished run: every kind of artifact the report reads, scored by the real stage."""

from report_world import (  # noqa: F401
    artifact_of,
    corrected,
    counted,
    empty_world,
    four_queries,
    report,
    world,
)
