"""Register the command `statistics`, and the layouts that it reads."""

from tandem.commands import STEPS, Command, register_command
from tandem.config.table_layouts import LAYOUT_FILES
from tandem.contrib.statistics.options import StatisticsLayout

LAYOUT_FILES["statistics"] = (StatisticsLayout, "Layouts of statistics tables")
register_command(
    Command(
        "statistics",
        "contrib.statistics.printed_statistics:write_statistics",
        STEPS,
        "A table of datasets.",
    )
)
