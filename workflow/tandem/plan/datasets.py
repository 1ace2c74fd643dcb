"""Datasets as stages: their splits, and ours for a paper's."""

from collections.abc import Collection, Mapping
from itertools import filterfalse
from pathlib import Path
from typing import Any

from tandem.config.datasets import QRELS_FILES, Appended, Dataset, Expanded, Group, UnionDataset, Unlabelled
from tandem.config.references import Name, inherited_notes, names_in
from tandem.config.settings import Settings
from tandem.data.reading import PACKED_ENDS, is_leftover
from tandem.data.splits import VALIDATED, count_keys, group_qrels
from tandem.errors import Unavailable, UserError, nearest, printable
from tandem.evaluation.layouts import Layout, has_dataset
from tandem.plan.context import Context, json_of, plans_dataset, plans_entry, plans_reference, strings
from tandem.plan.graph import Stage
from tandem.plan.references import Scope, number_roles, plan_references
from tandem.stages.base import Json
from tandem.store.files import fingerprint

NULLABLE = ("most",)  # keys whose null is a value
IDENTITY = ("url", "member", "sha256", "md5")  # of a file to be downloaded
DRAWN_SPLITS = ("dev_from_train", "train_from_test")  # keys that draw a split from another
# What an entry says about a dataset's files, and is not true of one that is made of it.
PARTIAL = ("counts", "bytes", "access", "where", "mteb")
SHARE, MOST = 0.1, 500  # of the training queries that become dev where it is missing


def notes_of(entry: Dataset, without: tuple[str, ...] = ()) -> Json:
    """Return the notes of a dataset's entry, which a dataset made of it takes over."""
    keys = (key for key in inherited_notes(type(entry)) if key not in without)
    return {key: value for key in keys if (value := getattr(entry, key, None)) is not None}


def dataset(ctx: Context, name: str) -> Stage:
    """Return the stage that makes a dataset."""
    ctx.dataset_entry(name)  # refuses an unknown name
    return ctx.entry("datasets", name)


@plans_entry("datasets")
def plan_dataset(ctx: Context, name: str) -> Stage:
    """Plan a dataset: read from files, made of other datasets alone, or as its source has registered."""
    entry = ctx.datasets[name]
    if entry.source in plans_dataset:
        return plans_dataset[entry.source](ctx, name, entry)
    if isinstance(entry, Group):
        raise Unavailable(f"datasets.{name} is a group: it has scores, but no passages; name one of {list(entry.of)}")
    return make_dataset(ctx, name, entry, plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED)))


@plans_reference("dataset")
def plan_named_datasets(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the dataset, or each of the datasets, that a key names."""
    return number_roles(name, [dataset(ctx, of) for of in name.names])


def make_dataset(ctx: Context, name: str, entry: Dataset, upstream: dict[str, Stage]) -> Stage:
    """Return the stage that makes a dataset; `upstream` has, by role, the stages that a derived one is made from."""
    params = {key: value for key, value in json_of(entry).items() if value is not None or key in NULLABLE}
    made_of = [stage for stage in upstream.values() if stage.declared.holds == "collection"]
    if made_of and "normalize" not in entry.model_fields_set:  # what is put together gets one form
        forms = {stage.values["normalize"] for stage in made_of}
        params["normalize"] = "nfc" if "nfc" in forms else "none"
    if isinstance(entry, UnionDataset):
        params["names"] = list(entry.of)  # which ids begin with

    _check_counts(ctx, name, entry)
    has_drawn_split = any(params.get(key) for key in DRAWN_SPLITS)
    expected = {
        "checksum": entry.checksum,
        "counts": None if has_drawn_split else entry.counts,
        "licence": entry.licence,
    }
    execution: Json = {key: value for key, value in expected.items() if value}

    if entry.path is not None:
        if not Path(entry.path).exists():
            begins = "" if Path(entry.path).is_absolute() else f"; paths begin in {Path.cwd()}"
            hint = f"; {entry.where}" if entry.where else ""
            raise UserError(f"datasets.{name}.path is {printable(entry.path)}; no such file or folder{begins}{hint}")
        params["fingerprint"] = fingerprint(Path(entry.path), _read_files(entry, Path(entry.path)))
        execution["path"] = entry.path
    elif entry.files:
        files = {file: file_entry.model_dump(exclude_none=True) for file, file_entry in entry.files.items()}
        params["downloads"] = sorted([file, *map(values.get, IDENTITY)] for file, values in files.items())
        mirrors = [json_of(mirror) for mirror in ctx.settings.execution.mirrors]
        execution |= {"files": files, "name": name, "mirrors": mirrors}
    elif entry.reads_files and not upstream.get("queries"):
        if entry.access == "licence":
            raise UserError(f"datasets.{name} is not public: {entry.where or 'ask its makers'}")
        raise UserError(f"datasets.{name}.path is missing; name the folder that holds its files")
    return ctx.stage("dataset", name, name, params, upstream, execution)


def _check_counts(ctx: Context, name: str, entry: Dataset) -> None:
    """Refuse expected counts of what is neither passages nor a split."""
    keys = count_keys(entry.always_has or splits(ctx, name) or entry.counts or ())
    for key in entry.counts or ():
        if key not in keys:
            raise UserError(f"datasets.{name}.counts.{key} is neither passages nor a split{nearest(key, keys)}")


def expanded_dataset(ctx: Context, name: str, data: str) -> str:
    """Return the name of the dataset whose passages an entry of `expansions` searches.

    The dataset is added to the others if it is missing.
    """
    label, keys = f"{data}-{name}", ctx.settings.expansions[name].model_dump(include=set(Appended.model_fields))
    notes = notes_of(ctx.dataset_entry(data), PARTIAL)
    expanded = Expanded.model_validate({"source": "expanded", "of": data, **keys, **notes})
    if ctx.datasets.setdefault(label, expanded) != expanded:
        raise UserError(f"datasets.{label} has the name of a dataset made for expansions.{name}; name it otherwise")
    return label


def _read_files(entry: Dataset, folder: Path) -> list[Path] | None:
    """Return the files of a folder that are read, plain or packed; None, for all, if the source does not say."""
    if not (entry.reads or entry.file_keys):
        return None
    values = dict(entry)
    reads = (name.format_map(values) for name in entry.reads)
    names = [*reads, *(name for key in entry.file_keys for name in strings(getattr(entry, key)))]
    patterns = [f"{name}{end}" for name in names for end in ("", *PACKED_ENDS)]
    matching = (path for pattern in patterns for path in folder.glob(pattern.lstrip("/")))
    return sorted({*(folder / pattern for pattern in patterns), *filterfalse(is_leftover, matching)})


def check_group(ctx: Context, name: str) -> None:
    """Refuse a group that holds itself, directly or within another."""
    entry = ctx.dataset_entry(name)
    if isinstance(entry, Group):
        with ctx.opening("datasets", name):
            for of in entry.of:
                check_group(ctx, of)


def splits(ctx: Context, name: str) -> set[str] | None:
    """Return the splits of a dataset, as its entry or its folder tells without reading it; None if it does not."""
    if name not in ctx.splits:
        ctx.splits[name] = None  # of a dataset that is made of itself, which is refused where it is planned
        ctx.splits[name] = _splits(ctx, name)
    return ctx.splits[name]


def _splits(ctx: Context, name: str) -> set[str] | None:
    entry = ctx.dataset_entry(name)
    drawn = {key.partition("_")[0] for key in DRAWN_SPLITS if getattr(entry, key) is not None}
    for key in ("splits", "queries", "questions", "files_of"):
        if (by_split := getattr(entry, key, None)) is not None:
            return set(by_split) | drawn
    followed = entry.follow_splits(lambda other: splits(ctx, other))
    if followed is None or followed:
        return followed
    if entry.source in ("beir", "pair") and entry.path and Path(entry.path).is_dir():
        paths = filterfalse(is_leftover, sorted(Path(entry.path).glob(QRELS_FILES)))
        in_folder = group_qrels(path for path in paths if path.is_file())
        return (in_folder.keys() | drawn) or {"test"}
    # An entry that says how many queries each split has.
    counted = {key for key in entry.counts or {} if key != "passages" and not key.endswith("_qrels")}
    return (counted and counted | drawn) or set(entry.always_has) or None


def draw_missing_dev(ctx: Context) -> None:
    """Have dev drawn from train where something needs it and a dataset is known to lack it; note a line each.

    The share is drawn by a hash of the queries' ids, by the dataset's own key `dev_from_train`: it stands in the
    dataset's parameters, and so in the lineage of every number. An entry that sets the key, if to null, is left as it
    is.
    """
    settings = ctx.settings
    needing: dict[str, None] = {}  # the datasets whose dev queries something needs, in order
    for model in settings.models.values():
        if model.train.choose == "dev" or model.train.validate_every or model.candidates.calibrates:
            needing[ctx.trained_on(model)] = None
    choosing = [settings.bm25.tune.split for variant in settings.sparse.values() if variant.tuned]
    choosing += [fusion.tune.split for fusion in settings.fusions.values() if fusion.is_tuned]
    choosing += [pipeline.split for pipeline in settings.pipelines.values()]
    if VALIDATED in choosing:
        needing[settings.dataset] = None

    for name in needing:
        entry = ctx.datasets.get(name)
        if entry is None or entry.relevance != "qrels" or "dev_from_train" in entry.model_fields_set:
            continue
        if any(names_in(entry, "")):  # its splits are those of other datasets
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


def may_have_split(ctx: Context, name: str, split: str) -> bool:
    """Return whether a dataset has a split, or nobody knows."""
    return (known := splits(ctx, name)) is None or split in known


def require_split(ctx: Context, name: str, split: str, what: str) -> None:
    """Refuse a split that a dataset is known to lack; `what` names the key that needs it."""
    if not may_have_split(ctx, name, split):
        have = ", ".join(sorted(splits(ctx, name) or ())) or "none"
        hint = "; name another dataset with train_on" if split == "train" else ""
        raise Unavailable(f"{what} on split {split}, but dataset {name} has {have}{hint}")


def searched_for(
    named: str, stand_in: str | Mapping[str, str] | None, configured: str, of_table: Collection[str], otherwise: str
) -> str:
    """Our dataset for one that a paper names, each as the catalogue does.

    `stand_in: squad` puts one dataset for all of a paper's, `stand_in: {msmarco: squad}` one for each. What it does not
    name is searched where the paper does if the configured dataset is one of the table's own, else on the configured.

    Args:
        configured: the configuration's `dataset`.
        of_table: every dataset that the table names.
        otherwise: where none of these decides.
    """
    if isinstance(stand_in, str):
        return stand_in
    if stand_in and named in stand_in:
        return stand_in[named]
    return named if configured in of_table else otherwise


class StandIns:
    """The stand-ins of one configuration for the datasets of one layout."""

    def __init__(self, settings: Settings, datasets: Mapping[str, Dataset], layout: Layout) -> None:
        self.stand_in, self.dataset, self.train_on = settings.stand_in, settings.dataset, settings.train_on
        self.datasets, self.layout = datasets, layout

    def collection(self, dataset: str) -> str:
        """Return the collection that a dataset is, as the layout names it.

        Queries without labels make no other collection of one, nor does what the layout says is the same.
        """
        while isinstance(entry := self.datasets.get(dataset), Unlabelled):
            dataset = entry.of
        return next((name for name, others in self.layout.same.items() if dataset in others), dataset)

    def searched(self, named: str, otherwise: str = "") -> str:
        """Our dataset for one that the layout names, if any; `otherwise` is the default, else the configured one.

        Nothing stands in for the datasets of a table that is of no paper.
        """
        if not named or self.layout.printed_on is None:
            return named or self.dataset
        configured = self.collection(self.dataset)
        ours = searched_for(named, self.stand_in, configured, self.layout.datasets, otherwise or self.dataset)
        return self.dataset if ours == named == configured else ours

    def changed(self, changes: Mapping[str, Any]) -> Json:
        """Return a row's changes of the configuration, the datasets among them replaced by those that stand in."""
        return {
            path: self.searched(value, self.train_on or "") if value and has_dataset(path) else value
            for path, value in changes.items()
        }
