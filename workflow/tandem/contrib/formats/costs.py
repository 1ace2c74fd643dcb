"""How large datasets of sentences, of joined passages and with further queries are, by their base dataset's size."""

from dataclasses import replace

from tandem.config.datasets import UNLABELLED
from tandem.contrib.formats.options import position_names
from tandem.extras.estimate.resources import TOKENS_PER_SENTENCE, Volumes, derived_size, params_of
from tandem.plan.graph import Stage

# an estimate, if the passages of a title are joined and were not counted
_PASSAGES_OF_A_TITLE = 10


@derived_size("joined")
def measure_joined(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of joined passages: titles are not known, so documents are assumed as long as they may be."""
    params = params_of(stage)
    passages_each = params.most or _PASSAGES_OF_A_TITLE
    lengths = {**whole.lengths, "passage": whole.lengths["passage"] * passages_each}
    splits = [f"{params.split}_{name}" for name in position_names(params.positions)]
    # All queries may fall on one position.
    queries = {**whole.queries, **dict.fromkeys(splits, whole.queries.get(params.split, 0))}
    passages = max(1, whole.passages // passages_each)
    return replace(whole, passages=passages, queries=queries, lengths=lengths, counted=False)


@derived_size("cropped_sentences")
def measure_sentences(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a dataset whose queries are sentences of passages."""
    sentences_each = max(1.0, whole.lengths["passage"] / TOKENS_PER_SENTENCE)
    count = round(whole.passages * sentences_each)
    count = min(count, stage.values.get("most") or count)
    count += beside.queries.get("train", 0) if beside else 0
    return replace(whole, queries={"train": count}, positives={"train": count}, counted=False)


@derived_size("unlabelled")
def measure_unlabelled(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a dataset with queries without labels: a share of its own, or those of another dataset.

    Those of a file are not known; `counts` may state them.
    """
    train = whole.queries.get("train", 0)
    lost = round((stage.values.get("share") or 0.0) * train)
    further = beside.queries.get("train", 0) if beside else lost
    queries = {**whole.queries, "train": train - lost}
    if further:
        queries[UNLABELLED] = further
    positives = dict(whole.positives)
    if "train" in positives and train:
        positives["train"] = round(positives["train"] * (train - lost) / train)
    return replace(whole, queries=queries, positives=positives, counted=False)
