"""Find out what a manifest records about how a result was computed: sources, commit, libraries, memory."""

import hashlib
import importlib.metadata
import inspect
import re
import resource
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import tandem
from tandem.registry import LOOKED_UP
from tandem.stages import KINDS

PACKAGE_FOLDER = tandem.PACKAGE
# the folder of an installed package, and its file that names the commit
BUILT, COMMIT = "_project", "COMMIT"
IMPORT = re.compile(r"^\s*from (tandem\.[\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
# packages that every stage uses and that decide no result
GENERAL = {"cluster", "config", "errors", "redaction", "stages", "store"}
LIBRARIES = (
    "numpy",
    "pandas",
    "pyarrow",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "faiss",
    "ir_measures",
)
_STATUS = Path("/proc/self/status")


def provenance() -> tuple[dict[str, str], str | None, bool | None]:
    """Return versions of the libraries that this process imported, the code's commit, and whether files differ from it.

    The last two are found at the first call, as files that change later are not what runs.
    """
    return {name: _version(name) for name in LIBRARIES if name in sys.modules}, *code_commit(
        PACKAGE_FOLDER
    )


@cache
def code_commit(package: Path = PACKAGE_FOLDER) -> tuple[str | None, bool | None]:
    """Return the commit of a package's code, and whether files differ from it; None for both if that is unknown.

    An installed package records the commit of the checkout that it was built from. Git is not called then, as the
    environment may lie in a checkout of something else.
    """
    record = package / BUILT / COMMIT
    if record.is_file():
        words = record.read_text(encoding="utf-8").split()
        return (words[0], len(words) > 1) if words else (None, None)
    status = ask_git(package, "status", "--porcelain", "--untracked-files=no")
    return ask_git(package, "rev-parse", "HEAD"), None if status is None else bool(status)


def _version(module: str) -> str:
    """Return an imported library's version.

    Asking its distribution by name costs a search through all that is installed.
    """
    return str(
        getattr(sys.modules[module], "__version__", None) or importlib.metadata.version(module)
    )


def ask_git(package: Path, *words: str) -> str | None:
    """Return the output of a git command about a package's checkout; None if it fails."""
    # Git only reads: if it renewed its index, a killed job would leave the index locked, and git unusable for the user.
    return command_output("git", "--no-optional-locks", "-C", str(package), *words, seconds=20)


def command_output(*words: str, seconds: float = 60) -> str | None:
    """Return the stripped output of a command; None if it does not exist, fails or takes longer."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def modules_hash(kind: str) -> str:
    """Return 10 hex digits over the sources that determine a kind's result; a change causes a warning, not a rebuild.

    Modules that a job reaches by names of its configuration are left out: its manifest has the `hash_module` of each.
    """
    return _hash_files(sources_of_kind(kind))


def hash_looked_up(kind: str) -> dict[str, str]:
    """Return module → `hash_module` for modules that this process reached by names and a kind's sources lack."""
    own = set(sources_of_kind(kind))
    return {
        name: hash_module(name)
        for name in sorted(LOOKED_UP)
        if _decides(name) and not own.issuperset(sources(name))
    }


def hash_module(name: str) -> str:
    """Return 10 hex digits over the sources of a module and of its imports; an empty text if it no longer exists."""
    return _hash_files(sources(name))


@cache
def _hash_files(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for source in files:
        # a plugin's source is not in the package
        name = (
            source.relative_to(PACKAGE_FOLDER)
            if source.is_relative_to(PACKAGE_FOLDER)
            else source.name
        )
        digest.update(str(name).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:10] if files else ""


@cache
def sources(name: str) -> tuple[Path, ...]:
    """Return the files of a module of this package and of all modules that it imports, directly or not."""
    visited: set[Path] = set()
    waiting = [name]
    while waiting:
        path = PACKAGE_FOLDER.joinpath(*waiting.pop().split(".")[1:])
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if source in visited or not source.is_file():
            continue
        visited.add(source)
        for module, names in IMPORT.findall(source.read_text(encoding="utf-8")):
            if _decides(module):
                waiting += [
                    module,
                    *(f"{module}.{name.strip()}" for name in names.strip("()").split(",")),
                ]
    return tuple(sorted(visited))


def _decides(module: str) -> bool:
    return module.split(".")[1] not in GENERAL


def sources_of_kind(kind: str) -> tuple[Path, ...]:
    """Return the files that determine a kind's result: its module and all that it imports, directly or not."""
    run = KINDS[kind].run
    if not isinstance(run, str):  # a plugin's
        return (Path(inspect.getfile(run)),)
    return sources(f"tandem.{run.partition(':')[0]}")


def peak_mib() -> int:
    """Return the most memory, in MiB, of this process since its program began; `ru_maxrss` may be its parent's."""
    with suppress(OSError):
        if match := re.search(r"^VmHWM:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE):
            return int(match[1]) >> 10
    unit = 20 if sys.platform == "darwin" else 10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> unit
