"""Install packages by uv, from where pip would take them: `.venv/bin/python envs/install_by_uv.py -r LOCK`.

uv is several times as fast as pip, but reads none of pip's settings. It is told those that say where packages come
from. Where it is not installed, pip fetches it into `.venv/.uv`. Status 1: only pip can install here.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UV = "uv==0.13.9"  # fetched where none is installed; a newer one does as well
FETCHED = Path(sys.prefix, ".uv")
FLAGS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
}
SWITCHES = {"no-index": "--no-index", "pre": "--prerelease=allow"}
CERTIFICATE = "cert"
# How pip talks, waits and keeps files. Any other setting may decide what is installed: then pip does it.
WITHOUT_EFFECT = {
    "break-system-packages", "cache-dir", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-color",
    "no-input", "no-python-version-warning", "progress-bar", "quiet", "require-virtualenv", "retries",
    "root-user-action", "timeout", "verbose",
}  # fmt: skip


def read_pip_settings() -> dict[str, str]:
    """Return pip's settings for installing: of its files, then of the environment's variables, which win."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in lines:
            if line.startswith(section):
                name, _, value = line.removeprefix(section).partition("=")
                settings[name] = ast.literal_eval(value)
    return settings


def list_flags(settings: dict[str, str]) -> list[str] | None:
    """Return uv's flags for pip's settings; None where uv has none for one of them."""
    # as pip: the newest of all indexes, not the first one's
    flags = ["--index-strategy", "unsafe-best-match"]
    for name, value in settings.items():
        if name in FLAGS:
            for word in value.split():
                flags += [FLAGS[name], word]
        elif name in SWITCHES:
            if value.lower() in ("1", "true", "yes", "on"):
                flags.append(SWITCHES[name])
        elif name not in WITHOUT_EFFECT | {CERTIFICATE, "config-file"}:
            return None
    return flags


def find_uv() -> str | None:
    """Return the path of an installed uv, else of one that pip fetches now; None where pip cannot."""
    path = shutil.which("uv") or shutil.which("uv", path=str(FETCHED / "bin"))
    if path is None:
        words = [
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--retries",
            "0",
            "--target",
            str(FETCHED),
            UV,
        ]
        subprocess.run([sys.executable, "-m", "pip", *words], stderr=subprocess.DEVNULL)
        path = shutil.which("uv", path=str(FETCHED / "bin"))
    return path


def main(words: Sequence[str]) -> int:
    """Install what the words of `uv pip install` name into this Python's environment; the exit status."""
    settings = read_pip_settings()
    flags = list_flags(settings)
    uv = find_uv() if flags is not None else None
    if flags is None or uv is None:
        return 1
    environment = dict(os.environ)
    if CERTIFICATE in settings:
        environment.setdefault("SSL_CERT_FILE", settings[CERTIFICATE])
    line = [uv, "pip", "install", "--quiet", "--python", sys.executable, *flags, *words]
    return subprocess.run(line, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
