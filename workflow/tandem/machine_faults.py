"""Errors that come from the machine, not from the code or the user: a full disk, no memory. A line says what to do."""

import errno
import os

from tandem.memory import peak_mib

MEMORY = (
    "can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory", "outofmemory", "bad_alloc",
    "unable to allocate", "malloc of size", "failed to map segment", "can't start new thread", "insufficient memory",
    "failed to create jvm", "resource temporarily unavailable", "could not create a primitive",
)  # fmt: skip
DISK = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space, or ask for more",
    errno.EROFS: "make it writable, or work in another folder (snakemake --directory)",
    errno.EACCES: "make it writable, or work in another folder (snakemake --directory)",
    errno.EPERM: "make it writable, or work in another folder (snakemake --directory)",
    errno.EMFILE: "raise the limit (ulimit -n)",
    errno.EFBIG: "raise the limit (ulimit -f)",
    errno.ENFILE: "raise the system's limit (sysctl fs.file-max)",
    errno.EIO: "look at the disk's health",
    errno.ESTALE: "look at the network file system",
}
AGAIN = "then run the same command again: it goes on with what is done"


def line(error: BaseException) -> str | None:
    """What an error says about the machine, in one line; None if it is of another sort.

    Libraries wrap the system's errors in their own, with its words in the message: what an error was raised from, or
    while handling which, is looked at too.
    """
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    for one in chain:
        if found := _memory(one) or _disk(one):
            return found
    return None


def _memory(error: BaseException) -> str | None:
    """The line for an error that means that memory was refused."""
    number = error.errno if isinstance(error, OSError) else None
    told = str(error).lower()
    if not isinstance(error, MemoryError) and number != errno.ENOMEM and not any(word in told for word in MEMORY):
        return None
    where = "the GPU's memory is used up" if "cuda" in told else f"out of memory, with {peak_mib():,} MiB in use"
    smaller = "execution.micro_tokens, search_memory or batch_tokens"
    return f"{where}{_said(error)}; give the job more, or lower {smaller}, {AGAIN}"


def _disk(error: BaseException) -> str | None:
    """The line for an error of the file system: the file, what the system says, what to do."""
    if isinstance(error, OSError) and error.errno in DISK:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{os.strerror(error.errno)}; {DISK[error.errno]}, {AGAIN}"
    told = str(error)
    for number, hint in DISK.items():
        if os.strerror(number) in told:
            return f"{_said(error).removeprefix(': ')}; {hint}, {AGAIN}"
    return None


def _said(error: BaseException) -> str:
    """`: ` and the beginning of an error's first line, if it has one."""
    first = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
    return f": {first[:200]}" if first else ""
