"""The logger plugin of `tandem run`, where Snakemake looks for it: by its name on the module path.

`--logger tandem --logger-tandem-fd=N` switches it on.
"""

from tandem.extras.running.job_events import LogHandler, LogHandlerSettings

__all__ = ["LogHandler", "LogHandlerSettings"]
