"""What was read and found whole: large files are not hashed again by every job that reads them.

Beside a large artifact's manifest lies `.verified.json`: of each of its files that was compared with the manifest the
sha256 found, and the file's state at that time: size, times of change (contents' and inode's, nanoseconds) and inode.
A file whose state is another, or which the manifest tells another hash of, is read again; so is everything where the
record is absent or damaged. The state is taken before a file is read, and not kept of files that changed within the
last seconds, whose next change might carry the same time.

What that catches: a file truncated, replaced, written to, copied or touched since. What it does not catch: bytes that
change under the file system, on a failing disk, and a file rewritten in place by someone who turns back the machine's
clock. `find results -name .verified.json -delete` makes every job read everything once more.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

RECORD = ".verified.json"
LARGE = 64 << 20  # bytes of an artifact; smaller ones are hashed in a tenth of a second
SETTLED = 5_000_000_000  # nanoseconds since a file's last change: coarser than any file system's clock

State = list[int]  # size, time of the contents' change, of the inode's, inode


class Record:
    """What is known about an artifact's files.

    Args:
        folder: the artifact's.
        files: name → size and sha256, as its manifest tells them.
    """

    def __init__(self, folder: Path, files: dict[str, Any]) -> None:
        self.folder, self.files = folder, files
        self.large = sum(told["bytes"] for told in files.values()) >= LARGE
        self.known: dict[str, Any] = {}
        if self.large:
            with suppress(OSError, ValueError):
                known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
                self.known = known if isinstance(known, dict) else {}
        self.states = {name: state for name in files if self.large and (state := self._state(name))}

    def _state(self, name: str) -> State | None:
        """A file's state now; None where it is missing or no plain file."""
        try:
            told = os.stat(self.folder / name)
        except OSError:
            return None
        return [told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino]

    def unread(self) -> list[str]:
        """The files that must be read."""
        return [name for name in self.files if not self._is_known(name)]

    def _is_known(self, name: str) -> bool:
        """Whether a file was found whole and has not changed since."""
        state = self.states.get(name)
        return state is not None and self.known.get(name) == [self.files[name]["sha256"], *state]

    def keep(self) -> None:
        """Remember the files, all of which were found whole; nothing where the folder cannot be written to."""
        latest = time.time_ns() - SETTLED
        settled = {name: state for name, state in self.states.items() if max(state[1:3]) < latest}
        told = {name: [self.files[name]["sha256"], *state] for name, state in settled.items()}
        if not told or told == self.known:
            return
        partial = self.folder / f"{RECORD}.{os.getpid()}"
        with suppress(OSError):
            partial.write_text(json.dumps(told), encoding="utf-8")
            os.replace(partial, self.folder / RECORD)
        with suppress(OSError):
            partial.unlink(missing_ok=True)
