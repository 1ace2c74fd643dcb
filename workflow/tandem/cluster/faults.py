"""Explain faults of the machine, such as a full disk, no memory or a missing package, and say what to do."""

import errno
import os
import resource

from tandem.config.settings import HEAP
from tandem.errors import UserError
from tandem.stages import kind_of_command
from tandem.stages.base import flag_value
from tandem.store.environment import peak_mib

BYTES_PER_GIB = 1 << 30
# address space of torch, transformers and pyarrow; 2.6 GiB with two threads
START_BYTES = 3 * BYTES_PER_GIB
BYTES_PER_CORE = BYTES_PER_GIB // 8  # a thread's stack, its arena and OpenBLAS's buffer
JAVA_BYTES = 5 * BYTES_PER_GIB // 2  # Java's classes, code and threads, without its heap
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": BYTES_PER_GIB}
MEMORY = (
    "can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory", "outofmemory", "bad_alloc",
    "unable to allocate", "malloc of size", "failed to map segment", "can't start new thread", "insufficient memory",
    "failed to create jvm", "resource temporarily unavailable", "could not create a primitive",
    "_status_alloc_failed",
)  # fmt: skip
WRITABLE = "make it writable, or work in another folder (snakemake --directory)"
# for reading or for writing
_PERMITTED = "get the permission, or work in another folder (snakemake --directory)"
DISK = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space, or ask for more",
    errno.EROFS: WRITABLE,
    errno.EACCES: _PERMITTED,
    errno.EPERM: _PERMITTED,
    errno.EMFILE: "raise the limit (ulimit -n)",
    errno.EFBIG: "raise the limit (ulimit -f)",
    errno.ENFILE: "raise the system's limit (sysctl fs.file-max)",
    errno.EIO: "look at the disk's health",
    errno.ESTALE: "look at the network file system",
}
# Packages that not everybody needs → the extra of pyproject.toml that brings them.
EXTRAS = {
    "openai": "llm",
    "bitsandbytes": "qlora",
    **dict.fromkeys(("jupyter_client", "nbclient", "nbconvert", "nbformat"), "notebooks"),
}
RUN_AGAIN = "then run the same command again: it goes on with what is done"


def explain_fault(error: BaseException) -> str | None:
    """Return a line about the machine's fault behind an error or its cause; None if there is no such fault."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    for link in chain:
        line = _explain_memory(link) or _explain_disk(link) or _explain_package(link)
        if line:
            return line
    return None


def _explain_memory(error: BaseException) -> str | None:
    number = error.errno if isinstance(error, OSError) else None
    text = str(error).lower()
    is_named = any(word in text for word in MEMORY)
    if not isinstance(error, MemoryError) and number != errno.ENOMEM and not is_named:
        return None
    where = (
        "the GPU's memory is used up"
        if "cuda" in text
        else f"out of memory, with {peak_mib():,} MiB in use"
    )
    smaller = "execution.micro_tokens, search_memory or batch_tokens"
    return f"{where}{_get_first_line(error)}; give the job more, or lower {smaller}, {RUN_AGAIN}"


def _explain_disk(error: BaseException) -> str | None:
    if isinstance(error, OSError) and error.errno in DISK:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{os.strerror(error.errno)}; {DISK[error.errno]}, {RUN_AGAIN}"
    text = str(error)
    for number, hint in DISK.items():
        if os.strerror(number) in text:
            return f"{_get_first_line(error).removeprefix(': ')}; {hint}, {RUN_AGAIN}"
    return None


def _explain_package(error: BaseException) -> str | None:
    """Return a line about a missing package that only an extra of the distribution installs."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    return f"{error}; install it: pip install 'tandem-retrieval[{extra}]'" if extra else None


def _get_first_line(error: BaseException) -> str:
    for line in str(error).splitlines():
        if line.strip():
            return f": {line.strip()[:200]}"
    return ""


def require_address_space(words: list[str]) -> None:
    """Refuse to start a stage that maps more memory than the process' limit of addresses (`ulimit -v`) allows.

    Libraries map far more than they use; some loop or crash if that is refused while they start.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    kind = kind_of_command(words[0])
    if limit == resource.RLIM_INFINITY or kind is None:
        return
    needed = START_BYTES + BYTES_PER_CORE * (os.cpu_count() or 1)
    if kind.env == "lexical":
        needed += JAVA_BYTES + _read_heap(words)
    if limit < needed:
        fault = (
            f"out of memory: the limit of addresses is {limit / BYTES_PER_GIB:.1f} GiB (ulimit -v)"
        )
        mapped = f"at least {needed / BYTES_PER_GIB:.1f} are mapped at the start"
        raise UserError(f"{fault}, {mapped}; raise it: ulimit -v unlimited")


def _read_heap(words: list[str]) -> int:
    """Return the bytes of Java's heap; if the option is not a size, the default: Java's start refuses the option."""
    text = flag_value(words, "--run.heap", HEAP)
    if not text[:-1].isdecimal():
        text = HEAP
    unit = text[-1].lower()
    return int(text[:-1]) * _UNITS.get(unit, 1)
