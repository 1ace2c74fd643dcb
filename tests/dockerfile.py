"""The steps of a Dockerfile, one by one in folders (`chroot`), on a machine that cannot build an image.

    python tests/dockerfile.py --file envs/Dockerfile --context . --out FOLDER [--bind PATH …]

`FROM python:3.11-slim-bookworm` is Debian's bookworm by debootstrap with the Python that runs this program, which must
be 3.11. Needs root. Of a machine that has a package index or certificates of its own, `--bind` shows the folders to the
steps, at the same paths. `chroot FOLDER/STAGE COMMAND` is then what `docker run` would be.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KNOWN = ("FROM", "RUN", "COPY", "ARG", "ENV", "WORKDIR", "CMD")
IMAGE = re.compile(r"python:(3\.\d+)-slim-(\w+)")
# What Python's own modules load, besides what every Debian has.
LIBRARIES = (
    "ca-certificates",
    "libbz2-1.0",
    "libexpat1",
    "libffi8",
    "libreadline8",
    "libsqlite3-0",
    "libssl3",
)
SEEN = ("/proc", "/dev", "/sys", "/etc/resolv.conf")  # what every step sees of the machine
PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
# variables of this machine that a step may need
PASSED = re.compile("PIP_|https?_proxy$|no_proxy$", re.IGNORECASE)


def read_steps(text: str) -> list[tuple[str, str]]:
    """Return each step's instruction and its words; a `ValueError` for an instruction that is not known here."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    steps = []
    for line in filter(str.strip, joined.splitlines()):
        instruction, _, words = line.strip().partition(" ")
        if instruction not in KNOWN:
            raise ValueError(f"{instruction}: not one of {', '.join(KNOWN)}")
        steps.append((instruction, words.strip()))
    return steps


@contextmanager
def mounted(root: Path, paths: Sequence[str]) -> Iterator[None]:
    """Show folders and files of this machine in a root, at the same paths."""
    targets = []
    try:
        for path in map(Path, paths):
            target = root / path.relative_to("/")
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            subprocess.run(["mount", "--bind", str(path), str(target)], check=True)
            targets.append(target)
        yield
    finally:
        for target in reversed(targets):
            subprocess.run(["umount", str(target)], check=True)


def make_base(image: str, root: Path) -> None:
    """Make the root of an image's operating system and Python; a `ValueError` for an image that is not known here."""
    match = IMAGE.fullmatch(image)
    if not match or match[1] != f"{sys.version_info.major}.{sys.version_info.minor}":
        raise ValueError(
            f"{image}: not python:X.Y-slim-SUITE with the Python that runs this, {sys.version}"
        )
    libraries = f"--include={','.join(LIBRARIES)}"
    subprocess.run(["debootstrap", "--variant=minbase", libraries, match[2], str(root)], check=True)
    python, place = Path(sys.base_prefix), root / "usr/local"
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*", "*.a")
    shutil.copytree(
        python / "lib", place / "lib", symlinks=True, ignore=ignored, dirs_exist_ok=True
    )
    shutil.copy2(Path(sys.base_prefix, "bin", f"python{match[1]}"), place / "bin")
    (place / "lib" / f"python{match[1]}" / "site-packages").mkdir()
    for name in ("python3", "python"):
        (place / "bin" / name).symlink_to(f"python{match[1]}")
    Stage(root, ()).run("ldconfig && python3 -m ensurepip && ln -s pip3 /usr/local/bin/pip")


class Stage:
    """A folder in which the steps after a `FROM` run."""

    def __init__(self, root: Path, bound: Sequence[str]) -> None:
        self.root, self.bound, self.variables, self.folder = root, bound, {"PATH": PATH}, "/"

    def run(self, command: str) -> None:
        """Run a shell command; a `CalledProcessError` if it fails."""
        passed = {name: value for name, value in os.environ.items() if PASSED.match(name)}
        line = [
            "chroot",
            str(self.root),
            "/bin/sh",
            "-c",
            f"cd {shlex.quote(self.folder)} && {command}",
        ]
        environment = {"HOME": "/root", **passed, **self.variables}
        with mounted(self.root, [*SEEN, *self.bound]):
            subprocess.run(line, env=environment, check=True)

    def copy(self, source: Path, place: str) -> None:
        """Copy a file, or what is in a folder; a `ValueError` where a folder shown to the steps would hide it."""
        for path in self.bound:
            if Path(place).is_relative_to(path):
                raise ValueError(f"{place}: hidden by --bind {path}; name the folders below it")
        target = self.root / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def build(file: Path, context: Path, out: Path, bound: Sequence[str] = ()) -> None:
    """Run all steps, those of a stage in `out/<its name or number>`."""
    stages: dict[str, Stage] = {}
    bases: dict[str, Path] = {}
    stage = None
    for instruction, words in read_steps(file.read_text()):
        print(f"{instruction} {words}", flush=True)
        if instruction == "FROM":
            image, *named = re.split(r"\s+AS\s+", words)
            name = named[0] if named else str(len(stages))
            if image not in bases:
                bases[image] = out / "base"
                make_base(image, bases[image])
            subprocess.run(["cp", "-a", str(bases[image]), str(out / name)], check=True)
            stage = stages[name] = Stage(out / name, bound)
            continue
        assert stage, "the first step is FROM"
        if instruction == "RUN":
            stage.run(words)
        elif instruction in ("ARG", "ENV"):
            name, _, value = words.partition("=")
            stage.variables[name] = shlex.split(value)[0] if value else ""
        elif instruction == "WORKDIR":
            stage.folder = words
            (stage.root / words.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            flag, *places = words.split() if words.startswith("--from=") else ("", *words.split())
            origin = stages[flag.removeprefix("--from=")].root if flag else context
            stage.copy(origin / places[0].lstrip("/"), places[1])
    assert stage, f"{file}: no FROM"


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("file", "context", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--bind", nargs="*", default=[], metavar="PATH")
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    build(options.file, options.context, options.out, options.bind)


if __name__ == "__main__":
    main()
