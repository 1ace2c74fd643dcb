"""The command line: `python -m tandem <stage> …`, one line per stage, as the rules print it.

`--params.<path> <value>` sets a parameter (JSON, or plain text), `--in.<role> <folder>` names an upstream artifact,
`--run.<name> <value>` says how to run without changing the result, `--out` is the artifact's manifest.
"""

import importlib
import inspect
import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tandem import addresses, machine_faults
from tandem.alone import alone
from tandem.artifact import Job, open_artifact, validated, write_json
from tandem.config.execution import Execution
from tandem.errors import UserError
from tandem.launch import place
from tandem.progress_file import shown
from tandem.ranks import as_rank
from tandem.slurm import Try
from tandem.stages import KINDS

COMMANDS = {
    "datasets": "data.catalogue:main",
    "estimate": "extras.estimate.estimate:main",
    "search": "searching.command:main",
    "search-worker": "searching.worker:main",
    "export": "searching.export:main",
    "index-tradeoffs": "reporting.tradeoffs:main",
    "statistics": "reporting.statistics:main",
    "sweep": "reporting.sweep:main",
    "table": "reporting.tables:main",
    "report": "reporting.report:main",
    "audits": "reporting.audits:main",
    "notebook": "extras.analysis.notebook:main",
    "error-table": "extras.analysis.error_table:main",
    "fidelity": "reporting.fidelity:main",
    "show": "reporting.show:main",
    "why": "provenance.why:main",
    "lineage": "provenance.lineage:main",
    "verify": "provenance.verify:main",
    "check": "provenance.check:main",
    "gc": "provenance.gc:main",
    "bundle": "provenance.bundle:main",
    "prefetch": "provenance.prefetch:main",
    "top": "provenance.top:main",
}
# Commands that compute a share of a stage's work: the kind, and a function of the stage's job that returns facts.
SHARDS = {kind.shard_command: (kind.name, kind.shard) for kind in KINDS.values() if kind.shard}
SHARDS["index-train"] = ("index", "retrieval.indexes.index:train_shard")
# Commands that print for who reads them, who may stop reading.
READ = ("lineage", "verify", "check", "gc", "top", "why", "show", "datasets", "estimate")
USAGE = (
    "usage: python -m tandem <stage> --params.… --in.… --out …/stage.json\n"
    f"stages: {', '.join([*KINDS, *SHARDS, *COMMANDS])}"
)


def value(text: str) -> Any:
    """A flag's value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` → `{"a": {"b": 1}}`."""
    result: dict[str, Any] = {}
    for path, item in flat.items():
        *parents, last = path.split(".")
        at = result
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = item
    return result


def read_job(kind: str, words: list[str]) -> Job:
    """The job a stage's command line describes; upstream artifacts are opened and verified."""
    if len(words) % 2:
        raise UserError(f"{kind}: {words[-1]} has no value")
    flags = dict(zip(words[::2], words[1::2], strict=True))
    groups: dict[str, dict[str, str]] = {"--params.": {}, "--in.": {}, "--run.": {}}
    out = flags.pop("--out", None)
    for flag, text in flags.items():
        for prefix, group in groups.items():
            if flag.startswith(prefix):
                group[flag.removeprefix(prefix)] = text
                break
        else:
            raise UserError(f"{kind}: unknown flag {flag}; allowed are --params.…, --in.…, --run.… and --out")
    if out is None:
        raise UserError(f"{kind}: --out is missing: the artifact's {kind}/<key>/stage.json")
    return Job(
        kind=kind,
        out=Path(out).parent,
        params=nested({path: value(text) for path, text in groups["--params."].items()}),
        inputs={
            role: open_artifact(Path(folder), verify=role not in KINDS[kind].lazy)
            for role, folder in groups["--in."].items()
        },
        execution=validated(
            Execution, {name: value(text) for name, text in groups["--run."].items()}, f"{kind}: --run"
        ),
    )


def run_shard(kind: str, entry: str, words: list[str]) -> None:
    """Compute a share of a stage's work and write its facts to `--out`, `<artifact>/shards/<shard>-of-<shards>.json`.

    Takes the stage's flags and `--run.shard`, `--run.shards`.
    """
    job = read_job(kind, words)
    shard, shards = job.execution.shard, job.execution.shards
    if shard is None or not 0 <= shard < shards:
        raise UserError(f"{kind} shard: --run.shard is {shard}; of {shards} shards, 0 to {shards - 1} are allowed")
    facts = load(entry)(replace(job, out=job.out.parent))
    write_json(Path(words[words.index("--out") + 1]), facts)


def load(entry: str) -> Any:
    """The function behind `module:function` of this package, imported only now: torch alone takes seconds."""
    module, function = entry.split(":")
    return getattr(importlib.import_module(f"tandem.{module}"), function)


def main() -> int:
    """Run one command; a user's mistake is one line on standard error and exit status 1."""
    words = sys.argv[1:]
    if not words or words[0] not in {**KINDS, **SHARDS, **COMMANDS}:
        print(USAGE, file=sys.stderr)
        return 2
    # Idle threads must sleep soon: spinning ones slow a second process on the same cores several times, and sleeping at
    # once costs a tenth of the speed.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if words[1:2] == ["--help"]:
        if words[0] in SHARDS:
            entry = SHARDS[words[0]][1]
        else:
            entry = KINDS[words[0]].run if words[0] in KINDS else COMMANDS[words[0]]
        print(inspect.getdoc(load(entry)) or USAGE)
        return 0
    this = Try(words)
    try:
        return perform(words, this)
    except UserError as error:
        print(f"tandem {words[0]}: {error}", file=sys.stderr)
        return 1
    except BaseException as error:  # a panic of a library in Rust is no `Exception`
        return failed(error, words[0], this)


def perform(words: list[str], this: Try) -> int:
    """Do what a command line says, with its lock, its devices and its progress file; the exit status."""
    addresses.suffice(words)
    with alone(words, os.environ) as made, as_rank():
        if made:
            return 0
        if (status := place(words)) is not None:
            if status:
                this.failed(status)
            return status
        if words[0] in COMMANDS:
            return load(COMMANDS[words[0]])(words[1:]) or 0
        with shown(words):
            if words[0] in SHARDS:
                run_shard(*SHARDS[words[0]], words[1:])
                return 0
            load(KINDS[words[0]].run)(read_job(words[0], words[1:]))
            return 0


def failed(error: BaseException, command: str, this: Try) -> int:
    """Say an error of the machine in a line; the exit status. Any other error is raised again."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    if isinstance(error, BrokenPipeError) and command in READ:  # whoever reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    this.failed()
    if (told := machine_faults.line(error)) is None:
        raise error
    print(f"tandem {command}: {told}", file=sys.stderr)
    return 1


def leave(status: int) -> NoReturn:
    """End this process; after a failure without what libraries do at the end: without memory that fails, at length."""
    if status:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit()


if __name__ == "__main__":
    leave(main())
