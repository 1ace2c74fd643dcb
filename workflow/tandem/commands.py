"""The commands except those of stages: what `tandem --help` lists, and how a plugin adds one.

Declarations are data: a command's module is imported when it is called.
"""

from dataclasses import dataclass

from tandem.errors import NAME, UserError, nearest, printable
from tandem.plugins import Declarations
from tandem.stages import is_stage
from tandem.stages.base import Entry

# Where `--help` lists a command, in this order.
RUN, RESULTS, OPERATIONS, DATA, STEPS = GROUPS = (
    "Plan and search",
    "Look at results",
    "Operations",
    "Data",
    "Steps of the graph, as its rules call them",
)


@dataclass(frozen=True)
class Command:
    """Describe a command.

    Attributes:
        name: the word after `tandem`.
        entry: its function, or `module:function` below `tandem`, which is imported when it is called. The function's
            docstring and annotations are the command's help; its return value is the exit status (None is 0). A
            function `main` takes the words of the command line; others have typed arguments.
        group: where `--help` lists it.
        summary: its line there; empty: it is not listed.
        reads: whether all its work is done before it prints, so that its reader may stop reading (`| head`).
        resumes: whether the same command, called again, continues from what an interrupted call has done.
        takes_query: whether one of its words is a query, which may begin with `-`.
    """

    name: str
    entry: Entry
    group: str
    summary: str = ""
    reads: bool = False
    resumes: bool = False
    takes_query: bool = False

    @property
    def takes_words(self) -> bool:
        """Return whether its function takes the words of its command line."""
        return isinstance(self.entry, str) and self.entry.endswith(":main")

    @property
    def leaves_drafts(self) -> bool:
        """Return whether a signal may leave files half-written; commands that take words handle signals themselves."""
        return not (self.reads or self.takes_words)


_OWN = (
    Command("run", "extras.running.command:main", RUN, "Make what a configuration asks for; ends with the answer.",
            reads=True, resumes=True),
    Command("estimate", "extras.estimate.estimate:estimate", RUN, "What a configuration would cost.", reads=True),
    Command("show", "report.table_commands:show", RESULTS, "Print a table, aligned, with every p-value.", reads=True),
    Command("encoder", "extras.choose_encoder:choose_encoder", DATA, "How an encoder makes vectors.", reads=True),
    Command("datasets", "extras.catalogue:print_catalogue", DATA, "The catalogue of datasets.", reads=True),
    Command("table", "report.table_commands:write_table", STEPS, "A table's files."),
    Command("report", "extras.report.report_command:report", STEPS, "The report's page.", reads=True),
    Command("pack", "extras.archive:pack", STEPS, "An artifact as one file, for object storage."),
    Command("unpack", "extras.archive:unpack", STEPS, "Artifacts from such files.", resumes=True),
)  # fmt: skip
COMMANDS = Declarations((command.name, command) for command in _OWN)


def register_command(command: Command) -> Command:
    """Add a command of a plugin.

    Raises:
        UserError: its name is taken or is not a word, or its group is not one of `GROUPS`.
    """
    if command.name in COMMANDS or is_stage(command.name):
        raise UserError(f"command {command.name} is registered twice; rename one of them")
    if not NAME.fullmatch(command.name):
        raise UserError(
            f"command {printable(command.name)}: allowed in its name are letters, digits, _, . and -"
        )
    if command.group not in GROUPS:
        raise UserError(
            f"command {command.name}: its group is {command.group}{nearest(command.group, GROUPS)}"
        )
    COMMANDS[command.name] = command
    return command
