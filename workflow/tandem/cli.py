"""How a command that is not a stage is run: `--help`, flags with types, did-you-mean, shell completion."""

import inspect
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cyclopts import (
    App,
    CycloptsError,
    Group,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from pydantic import BaseModel

from tandem import ROOT, __version__
from tandem.commands import COMMANDS, GROUPS, STEPS, Command
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.plugins import load_installed_plugins
from tandem.stages import KINDS, Kind, kind_of_command, shard_commands
from tandem.store.job import load

_GROUPS = {name: Group(name, sort_key=order) for order, name in enumerate(GROUPS, 1)}
_PLUGINS = "--run.plugins"  # the flag of a stage, which loads the plugins of any command


def run(words: list[str]) -> int:
    """Run the command that the words after `tandem` name; return the exit status: 2 for none or an unknown one.

    Raises:
        UserError: a flag or value that is not allowed, or a mistake that the command found.
    """
    name, help_wanted = words[0] if words else "", words[1:2] in (["--help"], ["-h"])
    is_known = name in COMMANDS or kind_of_command(name) is not None
    failures = [] if is_known else load_installed_plugins()
    command, kind = COMMANDS.get(name), kind_of_command(name)
    words = without_plugins(words)
    if command and command.group != STEPS:
        require_own_checkout()
    try:
        if kind and help_wanted:
            print(stage_help(kind, name))
        elif kind and not is_known:
            raise UserError(
                f"is a stage of an installed plugin; name that: {_PLUGINS} '[\"bees\"]'"
            )
        elif name == "--version":
            print(describe_version())
        elif command is None or not command.takes_words:
            if command is None:  # a plugin that does not load may have declared it
                for failure in failures:
                    print(f"tandem: {failure}", file=sys.stderr)
            return _run_app(words, command)
        elif help_wanted:
            print(inspect.getdoc(load(command.entry)))
        else:
            return load(command.entry)(words[1:]) or 0
    except BrokenPipeError:
        if command and not (command.reads or help_wanted):
            raise
    return 0


def without_plugins(words: list[str]) -> list[str]:
    """Return the words of a command line without the flag that names plugins, which are loaded already."""
    if _PLUGINS not in words:
        return words
    flag = words.index(_PLUGINS)
    return words[:flag] + words[flag + 2 :]


def require_own_checkout() -> None:
    """Refuse to work in a checkout other than this code's: a copied one still runs the programs of the old `.venv`.

    Raises:
        UserError: the working folder is another checkout.
    """
    here = Path("workflow/tandem/cli.py")
    if here.is_file() and not here.samefile(__file__):
        hint = "run envs/setup.sh here, then `source .venv/bin/activate` again"
        raise UserError(f"{Path.cwd()} is a checkout, but this is the program of {ROOT}; {hint}")


def _run_app(words: list[str], command: Command | None) -> int:
    configurations = None
    if command and "configurations" in inspect.signature(load(command.entry)).parameters:
        configurations, rest = load("extras.targets:read_configurations")(words[1:])
        words = [words[0], *rest]
    try:
        function, bound, _ = app(words[0] if words else "").parse_args(
            words, print_error=False, exit_on_error=False
        )
    except UnknownCommandError:  # its own message would import every command
        near = get_close_matches(words[0], [*COMMANDS, *KINDS, *shard_commands()], 1)
        plugin = f"of a plugin's stage: tandem {shlex.join(words)} --run.plugins '[\"my.py\"]'"
        hint = f"did you mean {near[0]}?" if near else f"all commands: tandem --help; {plugin}"
        print(f"tandem: {words[0]} is not a command; {hint}", file=sys.stderr)
        return 2
    except UnusedCliTokensError as error:
        unused = " ".join(error.unused_tokens or [])
        is_file = configurations and unused.endswith(".yaml")
        hint = f"say --configfile {unused}" if is_file else f"flags: tandem {words[0]} --help"
        raise UserError(f"{unused} is not allowed here; {hint}") from None
    except CycloptsError as error:
        may_be_query = isinstance(error, UnknownOptionError) and command and command.takes_query
        hint = " A query that begins with - stands after a --." if may_be_query else ""
        raise UserError(f"{error}{hint}") from None
    if configurations is not None and "configurations" in inspect.signature(function).parameters:
        bound.arguments["configurations"] = configurations
    status = function(*bound.args, **bound.kwargs)
    return status if isinstance(status, int) else 0 if words else 2


def describe_version() -> str:
    """Return the version, the commit of the code, and where the workflow's files are."""
    commit, changed = load("store.environment:code_commit")()
    code = (
        f"commit {commit[:12]}{' with changes' if changed else ''}" if commit else "commit unknown"
    )
    return f"tandem {__version__}, {code}, {ROOT}"


def app(selected: str = "") -> App:
    """Build the command line with all commands and import none; the selected one's help is its function's docstring."""
    stages = f"Stages, as the rules call them (tandem STAGE --help): {', '.join(KINDS)}."
    tandem = App(
        name="tandem",
        version=__version__,
        help="Passage-retrieval experiments as one graph of cached, verified stages. Snakemake runs the graph.",
        help_epilogue=None if selected in COMMANDS else stages,
        help_format="markdown",
        default_parameter=Parameter(negative_bool=()),
        print_error=False,
        exit_on_error=False,
    )
    for command in COMMANDS.values():
        group = _GROUPS[command.group]
        listed: dict[str, Any] = {
            "name": command.name,
            "group": group,
            "show": bool(command.summary),
        }
        if command.takes_words:
            tandem.command(App(help=command.summary, **listed))
        else:
            listed |= {} if command.name == selected else {"help": command.summary}
            entry = f"tandem.{command.entry}" if isinstance(command.entry, str) else command.entry
            tandem.command(entry, **listed)
    for name in {*KINDS, *shard_commands()} - COMMANDS.keys():
        tandem.command(App(name=name, show=False))
    tandem.register_install_completion_command()
    return tandem


def stage_help(kind: Kind, command: str) -> str:
    """Write a stage's flags with types, defaults and descriptions, from its declaration."""
    usage = f"usage: tandem {command} --params.… VALUE --in.ROLE FOLDER --run.… VALUE --out …/stage.json"
    if kind.params is None:
        return usage
    blocks = [
        inspect.getdoc(kind.params) or "",
        f"parameters, which decide the result:\n{_fields('--params.', kind.params)}",
        f"execution, which never changes it:\n{_fields('--run.', Execution)}",
    ]
    return "\n\n".join([usage, *blocks])


def _fields(prefix: str, model: type[BaseModel]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        kind = inspect.formatannotation(
            field.annotation, getattr(field.annotation, "__module__", None)
        )
        default = (
            "required"
            if field.is_required()
            else f"default {field.get_default(call_default_factory=True)!r}"
        )
        flag = f"  {prefix}{field.alias or name}"
        rows.append((flag, kind.replace("typing.", ""), default, field.description or ""))
    return columns(rows)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
