"""What a failed stage said itself, at the end of its log."""

import re
from collections.abc import Iterable
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"
OWN = re.compile(r"tandem [\w-]+: ")
FAILED = re.compile(r"^ *log: (.+) \(check log file", re.MULTILINE)  # Snakemake's words about a job that has failed


def stage_words(logs: Iterable[Path]) -> str:
    """A stage's last `tandem …:` line and what follows; empty where it said none, or fell over after it."""
    words = [line for path in logs for line in read_lines(path)]
    own = [at for at, line in enumerate(words) if OWN.match(line)]
    if not own or any(line.startswith(TRACEBACK) for line in words[own[-1] :]):
        return ""
    return "\n".join(words[own[-1] :])


def words_of_failed_stages(logs: Iterable[str]) -> str:
    """What the stages said that failed, by Snakemake's own logs of a run; empty where they said nothing."""
    named = FAILED.findall("\n".join(line for log in logs for line in read_lines(Path(log))))
    said = (stage_words(map(Path, paths.split(", "))) for paths in dict.fromkeys(named))
    return "\n".join(filter(None, said))


def read_lines(path: Path) -> list[str]:
    """The lines of a log that are not blank; none where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
