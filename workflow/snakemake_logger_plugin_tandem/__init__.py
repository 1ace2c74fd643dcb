"""A logger plugin of Snakemake for `tandem run`: what happens to jobs, as lines of JSON into a pipe.

Snakemake finds it by its name on the module path, and whatever it runs: so it imports nothing of Tandem.
`--logger tandem --logger-tandem-fd=N` switches it on.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from logging import LogRecord

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

# What is passed on of each kind of message; `tandem.extras.running.run_progress.Event` reads it.
FIELDS = {
    LogEvent.WORKFLOW_STARTED: (),
    LogEvent.RUN_INFO: ("stats",),
    LogEvent.JOB_INFO: ("jobid", "rule_name", "wildcards", "output", "log"),
    LogEvent.JOB_FINISHED: ("job_id",),
    LogEvent.JOB_ERROR: ("jobid",),
    LogEvent.PROGRESS: ("done", "total"),
    LogEvent.ERROR: ("exception",),
}


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """The flags of the plugin."""

    fd: int = field(
        default=2, metadata={"help": "file descriptor that events are written to", "type": int}
    )


class LogHandler(LogHandlerBase):
    """Writes a line for each event; a reader that is gone does not disturb the run."""

    writes_to_stream = False
    writes_to_file = False
    has_filter = True  # whatever --quiet says
    has_formatter = True
    needs_rulegraph = False

    def emit(self, record: LogRecord) -> None:
        """Write the event of a record, if it is one of `FIELDS`."""
        event = getattr(record, "event", None)
        if event not in FIELDS:
            return
        line = {"event": str(event)} | {name: getattr(record, name, None) for name in FIELDS[event]}
        if event == LogEvent.ERROR:
            line["message"] = record.getMessage()
        if event == LogEvent.WORKFLOW_STARTED:
            line["dryrun"] = self.common_settings.dryrun
        with suppress(OSError):
            os.write(self.settings.fd, (json.dumps(line, default=str) + "\n").encode())  # type: ignore[union-attr]
