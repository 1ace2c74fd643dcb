"""The lock file with the sha256 of every package as pip would install it on this machine: `python envs/hashes.py LOCK`.

Prints lines for `pip install --require-hashes -r`. They hold for this platform and this Python alone: another machine
is offered other wheels, and so other sums.
"""

import json
import subprocess
import sys


def lines(report: dict) -> list[str]:
    """`name==version --hash=sha256:…` of each package in what `pip install --report` tells, sorted by name."""
    made = []
    for one in report["install"]:
        name, version = one["metadata"]["name"], one["metadata"]["version"]
        made.append(
            f"{name}=={version} --hash=sha256:{one['download_info']['archive_info']['hashes']['sha256']}"
        )
    return sorted(made, key=str.lower)


def main(lock: str) -> None:
    """Ask pip, which downloads what the index tells no sum of, and installs nothing."""
    asked = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", "-r", lock]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *asked], stdout=subprocess.PIPE, check=True
    )
    print("\n".join(lines(json.loads(done.stdout))))


if __name__ == "__main__":
    main(sys.argv[1])
