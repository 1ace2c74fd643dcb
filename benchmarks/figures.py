"""Figures of a benchmark, as lines separated by tabs (what, ours, peer, ratio, unit) and as a Markdown table."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("torch", "transformers", "sentence-transformers", "ir_datasets", "pyarrow", "numpy")


@dataclass(frozen=True)
class Measured:
    """Seconds of the work, without the start of Python; processor seconds and peak MiB of the whole process."""

    passages: int
    seconds: float
    processor: float
    peak: float


def comparison(name: str, ours: Measured, peer: Measured) -> list[str]:
    """Return lines with throughput, processor time and memory of both sides on the same passages."""
    assert ours.passages == peer.passages
    pairs = (
        ("throughput", ours.passages / ours.seconds, peer.passages / peer.seconds, 0, "passages/s"),
        ("processor", ours.processor, peer.processor, 1, "s"),
        ("peak memory", ours.peak, peer.peak, 0, "MiB"),
    )
    return [
        f"{name} {ours.passages:,} {what}\t{a:,.{digits}f}\t{b:,.{digits}f}\t{a / b:.2f}\t{unit}"
        for what, a, b, digits, unit in pairs
    ]


def linearity(name: str, small: Measured, large: Measured) -> list[str]:
    """Return lines that state how many times longer the larger collection took, by the clock and by the processor."""
    between = f"{name} {large.passages:,} against {small.passages:,}"
    unit = f"linear is {large.passages / small.passages:.3g}"
    times = (
        ("seconds", large.seconds, small.seconds),
        ("processor", large.processor, small.processor),
    )
    return [f"{between} {what}\t{a:.1f}\t{b:.1f}\t{a / b:.2f}\t{unit}" for what, a, b in times]


def gpus() -> str:
    """Return the names of the GPUs that CUDA programs see, from `nvidia-smi`, and a semicolon; empty without GPUs."""
    if shutil.which("nvidia-smi") is None:
        return ""
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return "".join(f"{name}; " for name in listed.stdout.splitlines())


def machine() -> str:
    """Return a description of GPUs, processor, cores and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    return (
        f"{gpus()}{model}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"
    )


def markdown(title: str, note: str, lines: list[str]) -> str:
    """Return the lines as a Markdown table, below a title, the note and the machine."""
    rows = "".join(f"| {' | '.join(line.split(chr(9)))} |\n" for line in lines)
    head = "| what | ours | peer | ratio | unit |\n|---|--:|--:|--:|---|\n"
    return f"# {title}\n\n{note}\n\n{machine()}\n\n{head}{rows}"
