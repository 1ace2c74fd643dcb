"""What a user's files are, cheap enough for planning and the same wherever they lie."""

import hashlib
from pathlib import Path

EDGE = 1 << 16


def fingerprint(path: Path) -> str:
    """10 hex digits over the names, sizes, first and last 64 KiB of a file, or of all files below a folder."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    digest = hashlib.sha256()
    for one in files:
        size = one.stat().st_size
        digest.update(f"{one.relative_to(path) if path.is_dir() else ''}:{size}\n".encode())
        with open(one, "rb") as file:
            digest.update(file.read(EDGE))
            file.seek(max(0, size - EDGE))
            digest.update(file.read())
    return digest.hexdigest()[:10]
