"""What is odd about a dataset but no mistake: said once, and kept for its manifest."""

from tandem.cluster.progress import say


class Warnings:
    """Warnings of one dataset, in the order they arose."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Say a warning and keep it."""
        self.lines.append(line)
        say(f"dataset {self.key} · warning: {line}")

    def count(self, number: int, what: str) -> None:
        """Warn of `number` times `what`, unless there are none."""
        if number:
            self.add(f"{number:,} {what}")
