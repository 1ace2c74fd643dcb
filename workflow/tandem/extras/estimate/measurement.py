"""Measure how fast this machine computes a transformer's layers, once for each kind of processor.

The speed depends on a processor's instructions more than on anything in a configuration: with bf16 a training takes a
third of the time that it takes with only AVX2. As a program this module measures and prints; planning itself imports no
torch.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tandem.cluster.progress import say
from tandem.cluster.threads import busy_seconds, count_usable_cores, wait_briefly
from tandem.extras.import_path import with_library
from tandem.store.files import write_json

# The measured layers are MiniLM's; texts come in micro-batches as in a training.
HIDDEN_SIZE, FEED_FORWARD_SIZE, HEADS, LAYERS = 384, 1536, 12, 2
TEXTS, TOKENS_PER_TEXT, VOCABULARY = 32, 64, 64
MICRO_BATCHES = 4  # of a step, which are computed side by side
KEPT = "~/.cache/tandem/speed"  # one file per kind of processor, as machines may share a home
MEASURED_SECONDS = 3.0
MOST_SECONDS = 120.0  # for loading torch and measuring together
# share of the cores' time that other programs may take; above it a measurement is unreliable
DISTURBED_SHARE = 0.1
DISTURBED_SECONDS = 3600.0  # until a measurement disturbed by other programs is repeated
# Variables that forbid kernels to use some of the processor's instructions.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "asimd",
    "bf16",
    "sve",
)


class Speed(NamedTuple):
    """How fast a machine's processor computes.

    Attributes:
        processor: its name, its cores that may be used, and its instructions.
        precision: the precision that `auto` chooses on it, `bf16` or `fp32`.
        tflops: floating-point operations of forward and backward passes, in millions of millions a second.
        alone: whether no other program computed during the measurement.
    """

    processor: str
    precision: str
    tflops: float
    alone: bool


def measure_once() -> Speed | None:
    """Return the speed of this machine, which is measured at the first call and then stored in the user's home.

    If other programs computed during the measurement (`alone` is false), the machine is at least that fast, and is
    measured again after an hour. None if torch is not installed or does not compute.
    """
    processor = describe_processor()
    name = hashlib.sha256(f"{processor}, {MICRO_BATCHES} micro-batches".encode()).hexdigest()[:16]
    path = Path(KEPT).expanduser() / f"{name}.json"
    speed = _read_kept(path, processor)
    if speed is None:
        say("measuring how fast this machine computes, once; some seconds")
        speed = _measure_in_process(processor)
        if speed:
            with suppress(OSError):  # without write access it is measured every time
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, speed._asdict())
    return speed


def _read_kept(path: Path, processor: str) -> Speed | None:
    """Return an earlier measurement; None without one, or if it was disturbed and is old."""
    with suppress(OSError, ValueError, TypeError):
        kept = Speed(**json.loads(path.read_text(encoding="utf-8")))
        old = time.time() - path.stat().st_mtime > DISTURBED_SECONDS
        if kept.processor == processor and kept.tflops > 0 and (kept.alone or not old):
            return kept
    return None


def describe_processor() -> str:
    """Return what decides this processor's speed: its name, usable cores, instructions, and what restricts these."""
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    name = named[1] if named else platform.processor() or platform.machine()
    instructions = [word for word in INSTRUCTIONS if word in known]
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ]
    return ", ".join([name, f"{count_usable_cores()} cores", *instructions, *limits])


def _measure_in_process(processor: str) -> Speed | None:
    """Measure in a separate process, whose threads and memory end with it."""
    environment = with_library(os.environ) | {"CUDA_VISIBLE_DEVICES": ""}
    wait_briefly(environment)
    line = [sys.executable, "-m", __name__, processor]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(
            line, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=True
        )
        return Speed(**json.loads(done.stdout.splitlines()[-1]))
    return None


def measure_speed(processor: str) -> Speed:
    """Measure forward and backward passes of transformer layers, in the precision and on the threads of a training.

    The fastest pass counts: disturbances make a pass longer, never shorter.
    """
    from tandem.models.device import resolve_precision
    from tandem.plan.sizes import EncoderShape

    shape = EncoderShape(LAYERS, HIDDEN_SIZE, FEED_FORWARD_SIZE, VOCABULARY)
    forward = MICRO_BATCHES * shape.forward(TEXTS, TOKENS_PER_TEXT)
    operations = 3 * forward  # a backward pass costs two forward ones
    passes = _time_passes()
    next(passes)  # kernels are chosen, memory is taken
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    began, own, busy = time.perf_counter(), time.process_time(), busy_seconds(cores)
    seconds: list[float] = []
    while time.perf_counter() - began < MEASURED_SECONDS or not seconds:
        seconds.append(next(passes))
    others = (busy_seconds(cores) - busy) - (time.process_time() - own)
    alone = others <= DISTURBED_SHARE * count_usable_cores() * (time.perf_counter() - began)
    return Speed(processor, resolve_precision("auto"), operations / min(seconds) / 1e12, alone)


def _time_passes() -> Iterator[float]:
    """Yield, step after step, the seconds of its forward and backward passes."""
    import torch
    from transformers import BertConfig, BertModel

    from tandem.extras.side_by_side import carry_gradients, map_side_by_side
    from tandem.models.acceleration import use_learning_layers
    from tandem.models.device import is_onednn_used, keep_memory, precision, use_workers

    use_workers(None)
    keep_memory()
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN_SIZE, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD_SIZE, attn_implementation="eager",
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False)
    if is_onednn_used():
        use_learning_layers(model, TEXTS * TOKENS_PER_TEXT)
    texts = torch.randint(
        0, VOCABULARY, (TEXTS, TOKENS_PER_TEXT), generator=torch.Generator().manual_seed(0)
    )

    def compute(_: int) -> Any:
        """Return the states of a micro-batch, in float32."""
        with precision("auto"):
            return model(input_ids=texts).last_hidden_state.float()

    while True:
        began = time.perf_counter()
        vectors = list(map_side_by_side(compute, range(MICRO_BATCHES)))
        carry_gradients(vectors, [torch.ones_like(values) for values in vectors])
        yield time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(measure_speed(sys.argv[1])._asdict()))
