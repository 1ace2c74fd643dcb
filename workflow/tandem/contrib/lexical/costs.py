"""Estimate what it costs to number terms, and to find the directions of LSI."""

from tandem.extras.estimate.resources import MIB, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import LIGHT_PROCESS_BYTES
from tandem.plan.graph import Stage


@cost("bm25s")
def estimate_bm25s(stage: Stage, setting: Setting) -> Work:
    """Estimate numbering the terms of all passages: four bytes per term on disk, the vocabulary in memory."""
    size = setting.size(stage)
    disk = size.passages * (4 * size.lengths["passage"] + 8)
    return Work(rows=(("indexed", size.passages),), memory=1024 * MIB, disk=disk)


@cost("lsi")
def estimate_lsi(stage: Stage, setting: Setting) -> Work:
    """Estimate reading all terms about twice per dimension; a hundred dimensions take about as long as indexing."""
    size, dimensions = setting.size(stage), params_of(stage).dimensions
    rows = size.passages * (1 + dimensions / 100)
    vectors = 4 * size.passages * dimensions
    memory = LIGHT_PROCESS_BYTES + 12 * size.passages * size.lengths["passage"] + 4 * vectors
    return Work(rows=(("indexed", rows),), memory=memory, disk=vectors)
