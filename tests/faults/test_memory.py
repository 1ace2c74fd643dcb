"""Memory that is refused, at the start by a limit of addresses or while a stage is at work: one line, and resumable."""

import os
import random
import re
import resource
import shlex
import subprocess
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from faults_kit import SEED, TORTURE, chosen, kill, one_line, until

from tandem.cluster import faults
from tandem.cluster.faults import MEMORY
from tandem.errors import UserError

MIB = 1 << 20


def limited(copied, stage, most: int) -> tuple[int, str]:
    """A stage's exit status and what it says where it may map so many bytes."""
    return copied.run(
        stage, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))
    )


def needed(stage) -> int:
    """Bytes of addresses that a stage must be allowed."""
    cores = faults.BYTES_PER_CORE * (os.cpu_count() or 1)
    return (
        faults.START_BYTES
        + cores
        + (faults.JAVA_BYTES + 2 * faults.BYTES_PER_GIB if stage.kind in ("lucene", "bm25") else 0)
    )


def test_a_limit_below_what_libraries_map_is_a_line_in_every_stage(copied):
    for stage in chosen(copied.stages, *{stage.kind for stage in copied.stages}):
        copied.remove(stage)
        lower = (
            (256 * MIB, needed(stage) // 2) if stage.kind in ("lucene", "score") or TORTURE else ()
        )
        for most in (*lower, needed(stage) - 1):
            code, output = limited(copied, stage, most)
            assert code == 1
            (line,) = output.strip().splitlines()
            limit = f"the limit of addresses is {most / faults.BYTES_PER_GIB:.1f} GiB (ulimit -v)"
            assert line.startswith(f"tandem {stage.kind}: out of memory: {limit}")
            assert not (copied.folder / stage.folder).exists()


def test_what_is_asked_for_is_enough_and_changes_no_byte(copied, undisturbed):
    for stage in chosen(copied.stages, "score"):
        copied.remove(stage)
        assert limited(copied, stage, needed(stage) - 1)[0] == 1
        code, output = limited(copied, stage, needed(stage))  # the same command again, with enough
        assert code == 0, (stage.kind, output)
        assert stage.kind == "lucene" or copied.files(stage) == undisturbed.files(stage)


@pytest.mark.parametrize(
    ("words", "gib", "refused"),
    [
        ("lucene --run.heap 64g --out x", 40, True),
        ("bm25 --run.heap 512m --out x", 40, False),
        ("bm25 --run.heap null --out x", 7, True),
        ("model --run.heap 64g --out x", 40, False),
        ("embeddings-shard --out x", 1, True),
        ("lucene-shard --run.heap 64g --out x", 40, True),
        ("index-train --out x", 1, True),
        ("lineage results/x", 1, False),
    ],
)
def test_java_s_heap_counts_and_shards_are_stages(words, gib, refused):
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (gib * faults.BYTES_PER_GIB, before[1]))
    refusal = pytest.raises(
        UserError, match=rf"is {gib}\.0 GiB \(ulimit -v\), at least \d+\.\d are mapped at the start"
    )
    try:
        with refusal if refused else nullcontext():
            faults.require_address_space(shlex.split(words))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def mapped(pid: int) -> int:
    """Bytes of addresses that a process has."""
    return int(re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


@pytest.mark.skipif(not TORTURE, reason="every kind of stage, three times: make torture")
def test_where_memory_is_refused_at_work_nothing_is_lost(copied, undisturbed):
    """Arrow and Java wait for ever for threads that they are refused: what does not end is killed."""
    rng, ends = random.Random(SEED), Counter()
    for stage in 3 * chosen(copied.stages):
        copied.remove(stage)
        process = copied.start(stage)
        until((copied.folder / stage.folder / ".partial").exists, process)
        with suppress(OSError, TypeError):  # it has ended
            most = mapped(process.pid) + rng.choice([0, 1, 4, 16, 64]) * MIB
            resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
        try:
            output, _ = process.communicate(timeout=60)
            ends[
                "done"
                if not process.returncode
                else "a line"
                if process.returncode == 1
                else "aborted"
            ] += 1
        except subprocess.TimeoutExpired:
            kill(process)
            ends[output := "waits for ever"] += 1
        print(f"{stage.kind}: {process.returncode}: {output.strip()[:200]}", flush=True)
        assert (copied.folder / stage.manifest).exists() == (process.returncode == 0)
        if process.returncode == 1:
            one_line(output, *MEMORY)
        code, output = copied.run(stage)
        assert code == 0, output
        assert stage.kind == "lucene" or copied.files(stage) == undisturbed.files(stage)
    print(f"seed {SEED}: {dict(ends)}")
    assert ends["a line"] > 5


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.55 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    ],
)
def test_a_gpu_without_memory_is_a_line(message):
    expected = (
        f"the GPU's memory is used up: {message.splitlines()[0]}; give the job more, or lower "
    )
    assert (faults.explain_fault(RuntimeError(message)) or "").startswith(expected)
