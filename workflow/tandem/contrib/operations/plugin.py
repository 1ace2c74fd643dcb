"""The commands that look after results, and the files that show the progress of jobs."""

from tandem.cluster.progress import register_job_context
from tandem.commands import DATA, OPERATIONS, RESULTS, Command, register_command

for command in (
    Command(
        "why", "contrib.operations.provenance:print_difference", RESULTS, "Why two artifacts or rows differ.",
        reads=True,
    ),
    Command(
        "lineage", "contrib.operations.provenance:print_lineage", RESULTS, "The stages behind a number.", reads=True
    ),
    Command("top", "contrib.operations.top:print_jobs", RESULTS, "A line for each running job.", reads=True),
    Command("verify", "contrib.operations.verify:verify", OPERATIONS, "Compare results and manifests.", reads=True),
    Command("check", "contrib.operations.check:check", OPERATIONS, "What a rerun might not reproduce.", reads=True),
    Command(
        "gc", "contrib.operations.gc:collect_garbage", OPERATIONS, "List or delete what no configuration needs.",
        reads=True, resumes=True,
    ),
    Command("bundle", "contrib.operations.bundle:write_bundle", OPERATIONS, "A table and what reproduces it."),
    Command(
        "prefetch", "contrib.operations.prefetch:prefetch", DATA, "Download what a configuration needs.", resumes=True
    ),
):  # fmt: skip
    register_command(command)

register_job_context("progress file", "extras.running.progress_files:keep_progress_file")
