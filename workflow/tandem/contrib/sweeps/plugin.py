"""The key `sweeps`, the files that read it, and the command that computes a sweep's numbers."""

from tandem.commands import STEPS, Command, register_command
from tandem.config.settings import register_section
from tandem.config.table_layouts import LAYOUT_FILES
from tandem.contrib.sweeps.options import Sweep

LAYOUT_FILES["sweep"] = (Sweep, "Sweeps")
register_section(
    "sweeps",
    dict[str, Sweep],
    {},
    "tables and plots over values of any keys; see docs/sweeps.md",
    of_run=True,
)
register_command(
    Command("sweep", "contrib.sweeps.sweep_page:write_sweep", STEPS, "A sweep's table and charts.")
)
