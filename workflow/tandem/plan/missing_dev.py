"""Where dev is missing and something is chosen on it, a share of the training queries becomes dev.

The share is drawn by a hash of the queries' ids, by the dataset's own key `dev_from_train`: it stands in the dataset's
parameters, and so in the lineage of every number. An entry that sets the key, if to null, is left as it is.
"""

from collections.abc import Iterator

from tandem.config.datasets import Group
from tandem.data.splits import VALIDATED
from tandem.plan.context import Context
from tandem.plan.datasets import parts, splits
from tandem.plan.fusions import is_tuned

SHARE, MOST = 0.1, 500


def draw_missing_dev(ctx: Context) -> None:
    """Have dev drawn from train where something needs it and a dataset is known to lack it; note a line each."""
    for name in dict.fromkeys(needing_dev(ctx)):
        entry = ctx.datasets.get(name)
        if entry is None or entry.relevance != "qrels" or "dev_from_train" in entry.model_fields_set:
            continue
        if isinstance(entry, Group) or parts(entry):  # its splits are those of other datasets
            continue
        known = splits(ctx, name)
        if known is None or "train" not in known or VALIDATED in known:
            continue
        ctx.datasets[name] = entry.model_copy(update={"dev_from_train": SHARE, "dev_from_train_most": MOST})
        ctx.splits[name] = known | {VALIDATED}
        ctx.notices[name] = (
            f"dataset {name} has no dev split: {SHARE:.0%} of its training queries, at most {MOST}, become dev "
            f"(datasets.{name}.dev_from_train: {SHARE}; null: leave train as it is)"
        )


def needing_dev(ctx: Context) -> Iterator[str]:
    """Names of the datasets on whose dev queries something of the configuration is chosen."""
    settings = ctx.settings
    for model in settings.models.values():
        if model.train.choose == "dev" or model.train.validate_every is not None:
            yield ctx.trained_on(model)
    choices = [
        *(settings.bm25.tune.split for entry in settings.sparse.values() if entry.tuned),
        *(entry.tune.split for entry in settings.fusions.values() if is_tuned(entry)),
        *(entry.split for entry in settings.pipelines.values()),
    ]
    if VALIDATED in choices:
        yield settings.dataset
