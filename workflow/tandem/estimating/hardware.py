"""What a machine computes per second, kind of work by kind of work: measured figures with their origin."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tandem.config.loading import read_yaml
from tandem.errors import UserError, nearest

WORK = ("encode", "rerank", "dual", "cross", "joint")
RATES = ("passages", "tokens", "indexed", "bm25", "lines", "flat_search", "faiss", "faiss_alone")
OPERATIONS = ("flat_search", "faiss", "faiss_alone")  # rates that are told in millions of millions


@dataclass(frozen=True)
class Hardware:
    """One entry of config/hardware/.

    Attributes:
        name: its file's name.
        peak: TFLOP/s of large matrix products in the precision that training uses.
        mfu: kind of work → share of the peak that its model operations reach.
        rates: work without a model, per second: passages read, tokens made, passages indexed, queries of BM25 on a
            corpus of a million passages, lines scored, operations of exact search, and of FAISS by all and by one of
            the processor's threads.
        start: seconds to start a job with models.
        activation_bytes: bytes that a training keeps of each number it needs for the backward pass.
        held: bytes that a training's allocator holds beside what is in use.
        origin: where the figures are from, and which of them were not measured.
    """

    name: str
    peak: float
    mfu: dict[str, float]
    rates: dict[str, float]
    start: float
    activation_bytes: int
    held: int
    origin: dict[str, str]

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read an entry; a `UserError` where there is none of this name or a figure is missing."""
        path = folder / f"{name}.yaml"
        if not path.is_file():
            known = [found.stem for found in folder.glob("*.yaml")]
            raise UserError(f"execution.hardware: {name} is unknown{nearest(name, known)}")
        told: dict[str, Any] = read_yaml(path)
        for section, keys in (("mfu", WORK), ("rates", RATES)):
            for key in keys:
                if key not in told.get(section, {}):
                    raise UserError(f"{path}: {section}.{key} is missing")
        rates = {key: rate * (1e12 if key in OPERATIONS else 1) for key, rate in told["rates"].items()}
        kept = (told["activation_bytes"], told["held_mib"] << 20)
        return cls(name, float(told["peak_tflops"]), told["mfu"], rates, told["start_seconds"], *kept, told["origin"])

    def seconds(self, kind: str, operations: float) -> float:
        """How long so many model operations of a kind of work take on one device."""
        return operations / (self.peak * 1e12 * self.mfu[kind])
