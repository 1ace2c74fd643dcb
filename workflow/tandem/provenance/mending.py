"""The report of `verify` for a person: what does not fit, and the commands that mend it."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tandem.provenance.faults import Fault
from tandem.provenance.found import kind_of
from tandem.searching import words as command_line
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST

SHOWN = 1000  # faults, and files to be removed
REBUILT = ("missing", "truncated", "changed", "damaged", "unfinished", "input")  # faults that building anew mends
REMOVED = ("unknown", "draft")


@dataclass
class Report:
    """What was found, however much it is: the first faults in words, and of the others how many there are.

    Attributes:
        told: the command line, whose YAML files are repeated in the commands.
        artifacts: how many were looked at.
        count: of faults.
        lines: the first of them.
        damaged: folders that must be made anew; their order is that of the faults.
        removed: the first of the files and folders that nobody reads.
    """

    told: command_line.Words
    artifacts: int = 0
    count: int = 0
    lines: list[str] = field(default_factory=list)
    damaged: dict[Path, None] = field(default_factory=dict)
    removed: list[Path] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Take note of a fault."""
        self.count += 1
        if len(self.lines) < SHOWN:
            self.lines.append(f"{fault.what:<10} {fault.path}: {fault.why}")
        if fault.what in REBUILT and kind_of(fault.folder) in KINDS:  # a pair store says itself what to do
            self.damaged[fault.folder] = None
        if fault.what in REMOVED and len(self.removed) < SHOWN:
            self.removed.append(fault.path)

    def text(self) -> str:
        """The faults, and how to mend them."""
        if not self.count:
            return f"{self.artifacts:,} artifacts are what their manifests say\n"
        lines = list(self.lines)
        if self.count > SHOWN:
            lines.append(f"… and {self.count - SHOWN:,} more: --json tells all")
        if self.damaged:
            lines.append("\nTo build anew what is damaged (what was made from it keeps its bytes if it gets the same):")
            lines += rebuild(list(self.damaged)[:SHOWN], self.told)
            if len(self.damaged) > SHOWN:
                lines.append(f"… and {len(self.damaged) - SHOWN:,} more: verify again after that")
        if self.removed:
            lines.append("\nTo remove what nobody reads:")
            lines.append(shlex.join(["rm", "-r", *map(str, self.removed)]))
        return "\n".join(lines) + "\n"


def rebuild(folders: list[Path], told: command_line.Words) -> list[str]:
    """The commands that build artifacts anew, a line for every folder of results."""
    by_project: dict[Path, list[Path]] = {}
    for folder in folders:
        by_project.setdefault(folder.absolute().parents[3], []).append(folder)
    lines = []
    for project, damaged in by_project.items():
        manifests = [str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()]
        targets = [str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged]
        build = told.snakemake(targets)
        if project != Path.cwd():
            build += f" --directory {shlex.quote(str(project))}"
        lines.append(" && ".join([*([shlex.join(["rm", *manifests])] if manifests else []), build]))
    return lines
