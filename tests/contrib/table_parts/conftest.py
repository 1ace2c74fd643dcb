"""Tables over the small finished run of the report's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "report"))

from report_world import (  # noqa: F401
    artifact_of,
    corrected,
    empty_world,
    four_queries,
    report,
    world,
)
