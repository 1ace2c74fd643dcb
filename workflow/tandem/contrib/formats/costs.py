"""How large joined passages are, as far as that follows from the dataset that they are of."""

from dataclasses import replace

from tandem.contrib.formats.options import position_names
from tandem.extras.estimate.resources import Volumes, derived_size, params_of
from tandem.plan.graph import Stage

# about, where a title's passages are put together and nobody has counted them
_PASSAGES_OF_A_TITLE = 10


@derived_size("joined")
def measure_joined(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of joined passages: titles are not known, so that documents are as long as they may be."""
    params = params_of(stage)
    passages_each = params.most or _PASSAGES_OF_A_TITLE
    lengths = {**whole.lengths, "passage": whole.lengths["passage"] * passages_each}
    splits = [f"{params.split}_{name}" for name in position_names(params.positions)]
    # A position may have all queries.
    queries = {**whole.queries, **dict.fromkeys(splits, whole.queries.get(params.split, 0))}
    passages = max(1, whole.passages // passages_each)
    return replace(whole, passages=passages, queries=queries, lengths=lengths, counted=False)
