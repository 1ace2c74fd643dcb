"""Plan datasets: the stages that make them, their splits, and which of our datasets stands in for a paper's."""

from collections.abc import Collection, Mapping
from itertools import filterfalse
from pathlib import Path
from typing import Any

from tandem.config.datasets import (
    Dataset,
    Group,
    OfSearched,
)
from tandem.config.references import Name, names_in
from tandem.config.settings import Settings
from tandem.data.reading import PACKED_ENDS, is_leftover
from tandem.data.splits import VALIDATED, count_keys
from tandem.errors import Unavailable, UserError, nearest, printable
from tandem.evaluation.layouts import Layout, has_dataset
from tandem.plan.context import (
    Context,
    checks_entry,
    json_of,
    list_choosing,
    plans_dataset,
    plans_entry,
    plans_reference,
    strings,
)
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, number_roles, plan_references
from tandem.stages.base import Json
from tandem.store.files import fingerprint
from tandem.store.job import load

NULLABLE = ("most",)  # keys whose null is a value
IDENTITY = ("url", "member", "sha256", "md5")  # of a file to be downloaded
DRAWN_SPLITS = ("dev_from_train", "train_from_test")  # keys that draw a split from another
# The training queries that become dev where it is missing.
DEV_SHARE = 0.1
MOST_DEV_QUERIES = 500


def dataset(ctx: Context, name: str) -> Stage:
    """Return the stage that makes a dataset."""
    ctx.dataset_entry(name)  # refuses an unknown name
    return ctx.entry("datasets", name)


def corpus_dataset(ctx: Context, name: str) -> str:
    """Return the dataset that a dataset's passages come from, through all datasets in between; often itself.

    What is computed from passages only, such as their vectors, is then made once for all these datasets.
    """
    entry = ctx.dataset_entry(name)
    origin = getattr(entry, entry.corpus_key) if entry.corpus_key else None
    if origin is None or entry.title is not None:
        return name
    if dataset(ctx, name).values["normalize"] != dataset(ctx, origin).values["normalize"]:
        return name  # its texts may differ
    return corpus_dataset(ctx, origin)


@plans_entry("datasets")
def plan_dataset(ctx: Context, name: str) -> Stage:
    """Plan a dataset that is read from files, is made only of other datasets, or has a source that plans it."""
    entry = ctx.datasets[name]
    if entry.source in plans_dataset:
        return plans_dataset[entry.source](ctx, name, entry)
    if isinstance(entry, Group):
        raise Unavailable(
            f"datasets.{name} is a group: it has scores, but no passages; name one of {list(entry.of)}"
        )
    return make_dataset(
        ctx, name, entry, plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    )


@plans_reference("dataset")
def plan_named_datasets(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the dataset, or each of the datasets, that a key names."""
    for of in name.names:
        ctx.dataset_entry(of, name.path)  # refuses an unknown name
    return number_roles(name, [dataset(ctx, of) for of in name.names])


def make_dataset(
    ctx: Context,
    name: str,
    entry: Dataset,
    upstream: dict[str, Stage],
    further: Json | None = None,
) -> Stage:
    """Return the stage that makes a dataset.

    Args:
        upstream: by role, the stages that a derived dataset is made from.
        further: parameters of its source that are not keys of its entry.
    """
    params = {
        key: value for key, value in json_of(entry).items() if value is not None or key in NULLABLE
    }
    made_of = [stage for stage in upstream.values() if stage.declared.holds == "collection"]
    if made_of and "normalize" not in entry.model_fields_set:  # merged texts get one form
        forms = {stage.values["normalize"] for stage in made_of}
        params["normalize"] = "nfc" if "nfc" in forms else "none"
    params |= further or {}

    _check_counts(ctx, name, entry)
    has_drawn_split = any(params.get(key) for key in DRAWN_SPLITS)
    if has_drawn_split:
        counted = load("extras.drawn_splits:list_counted")(entry, upstream)
        params |= {"counted_shares": counted} if counted else {}
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
            raise UserError(
                f"datasets.{name}.path is {printable(entry.path)}; no such file or folder{begins}{hint}"
            )
        folder = Path(entry.path)
        params["fingerprint"] = fingerprint(
            folder, list_read_files(f"datasets.{name}", entry, folder)
        )
        execution["path"] = entry.path
    elif entry.files:
        files = {
            file: file_entry.model_dump(exclude_none=True)
            for file, file_entry in entry.files.items()
        }
        identities = [[file, *map(values.get, IDENTITY)] for file, values in files.items()]
        params["downloads"] = sorted(identities)
        mirrors = [json_of(mirror) for mirror in ctx.settings.execution.mirrors]
        execution |= {"files": files, "name": name, "mirrors": mirrors}
    # a file that a key names has to lie in `path` to be part of the dataset's key
    elif any(getattr(entry, key) for key in entry.file_keys) or (
        entry.reads_files and not upstream.get("queries")
    ):
        if entry.access == "licence":
            raise UserError(f"datasets.{name} is not public: {entry.where or 'ask its makers'}")
        raise UserError(f"datasets.{name}.path is missing; name the folder that holds its files")
    return ctx.stage("dataset", name, name, params, upstream, execution)


def _check_counts(ctx: Context, name: str, entry: Dataset) -> None:
    """Refuse expected counts under a key that is neither passages nor a split."""
    counts = entry.counts or {}
    keys = count_keys(entry.always_has or splits(ctx, name) or counts)
    for key in counts:
        if key not in keys:
            raise UserError(
                f"datasets.{name}.counts.{key} is neither passages nor a split{nearest(key, keys)}"
            )


def find_base(at: str, entry: OfSearched) -> str:
    """Return the dataset from which another is made.

    Raises:
        UserError: it is the dataset that is searched, and it names no other.
    """
    if entry.of is None:
        raise UserError(
            f"{at}.of is null, the dataset that is searched, which is this one; name another"
        )
    return entry.of


@checks_entry("datasets")
def check_made_of_searched(ctx: Context, name: str) -> None:
    """Refuse a dataset with another one's passages if it cannot be planned; other datasets are checked when needed."""
    if isinstance(ctx.settings.datasets[name], OfSearched):
        dataset(ctx, name)


def list_read_files(at: str, entry: Dataset, folder: Path) -> list[Path] | None:
    """Return the files of a folder that are read, plain or packed; None, for all, if the source does not say.

    Raises:
        UserError: the folder does not hold a file that its source needs or that a key names.
    """
    if not (entry.reads or entry.file_keys):
        return None
    named = [(key, name) for key in entry.file_keys for name in strings(getattr(entry, key))]
    named += [("path", name) for name in entry.requires]
    paths = set[Path]()
    for key, name in named:
        if "**" in name or not name.strip("/. "):
            raise UserError(f"{at}.{key} is {name!r}; the name of a file is needed")
        own = _match_files(folder, name)
        # what an archive holds is seen when it is unpacked
        if folder.is_dir() and not any(map(Path.is_file, own)):
            raise UserError(f"{at}.{key}: {folder} holds no {printable(name)}, plain or packed")
        paths |= own
    for name in entry.reads:
        paths |= _match_files(folder, name.format_map(dict(entry)))
    return sorted(paths)


def _match_files(folder: Path, name: str) -> set[Path]:
    """Return the paths that a name or pattern may mean, plain and packed; the paths of a name need not exist."""
    paths = set[Path]()
    for end in ("", *PACKED_ENDS):
        paths.add(folder / f"{name}{end}")
        matching = folder.glob(f"{name}{end}".lstrip("/"))
        paths.update(filterfalse(is_leftover, matching))
    return paths


def list_members(ctx: Context, name: str, key: str = "dataset") -> list[str]:
    """Return the datasets of a group and of the groups within it, or any other dataset itself; `key` names it.

    Raises:
        UserError: a group that holds itself, directly or within another.
    """
    entry = ctx.dataset_entry(name, key)
    if not isinstance(entry, Group):
        return [name]
    members = []
    with ctx.opening("datasets", name):
        for of in entry.of:
            members += list_members(ctx, of, f"datasets.{name}.of")
    return members


def splits(ctx: Context, name: str) -> set[str] | None:
    """Return the splits of a dataset that its entry or its folder shows without being read; None if neither does."""
    if name not in ctx.splits:
        # for a dataset that is made of itself, which is refused where it is planned
        ctx.splits[name] = None
        entry = ctx.dataset_entry(name)
        drawn = {key.partition("_")[0] for key in DRAWN_SPLITS if getattr(entry, key) is not None}
        known = _list_splits(ctx, entry)
        ctx.splits[name] = known and known | drawn
    return ctx.splits[name]


def _list_splits(ctx: Context, entry: Dataset) -> set[str] | None:
    """Return the splits of a dataset before its own keys draw further ones."""
    for key in ("splits", "queries", "questions", "files_of"):
        by_split = getattr(entry, key, None)
        if by_split is not None:
            return set(by_split)
    followed = entry.follow_splits(lambda other: splits(ctx, other))
    if followed is None or followed:
        return followed
    has_folder = entry.path is not None and Path(entry.path).is_dir()
    in_folder = entry.find_splits(Path(entry.path or "")) if has_folder else None
    if in_folder is not None:
        return in_folder or {"test"}
    # An entry that states how many queries each split has.
    counted = {
        key for key in entry.counts or {} if key != "passages" and not key.endswith("_qrels")
    }
    if counted:
        return counted
    return set(entry.always_has) or None


def draw_missing_dev(ctx: Context) -> None:
    """Draw dev from train for datasets that are known to lack it, if something needs it; note a line for each.

    The share is drawn by a hash of the queries' ids, by the dataset's own key `dev_from_train`: the key is one of the
    dataset's parameters, and so in the lineage of every number. An entry that sets the key, even to null, is left as
    it is.
    """
    settings = ctx.settings
    needing: dict[str, None] = {}  # the datasets whose dev queries something needs, in order
    for model in settings.models.values():
        if model.train.choose == "dev" or model.train.validate_every or model.candidates.calibrates:
            needing[ctx.trained_on(model)] = None
    choosing = [settings.bm25.tune.split for variant in settings.sparse.values() if variant.tuned]
    choosing += [entry.chosen_on for _, _, entry in list_choosing(settings) if entry.chosen_on]
    if VALIDATED in choosing:
        needing[settings.dataset] = None

    for name in needing:
        entry = ctx.datasets.get(name)
        if (
            entry is None
            or entry.relevance != "qrels"
            or "dev_from_train" in entry.model_fields_set
        ):
            continue
        if any(names_in(entry, "")):  # its splits are those of other datasets
            continue
        known = splits(ctx, name)
        if known is None or "train" not in known or VALIDATED in known:
            continue
        most = entry.dev_from_train_most or MOST_DEV_QUERIES
        drawing = {"dev_from_train": DEV_SHARE, "dev_from_train_most": most}
        ctx.datasets[name] = entry.model_copy(update=drawing)
        ctx.splits[name] = known | {VALIDATED}
        taken = f"{DEV_SHARE:.0%} of its training queries, at most {most}, become dev"
        hint = f"datasets.{name}.dev_from_train: {DEV_SHARE}; null: leave train as it is"
        ctx.notices[name] = f"dataset {name} has no dev split: {taken} ({hint})"


def may_have_split(ctx: Context, name: str, split: str) -> bool:
    """Return whether a dataset has a split, or may have it as its splits are unknown."""
    known = splits(ctx, name)
    return known is None or split in known


def require_split(ctx: Context, name: str, split: str, what: str) -> None:
    """Refuse a split that a dataset is known to lack; `what` names the key that needs it."""
    if not may_have_split(ctx, name, split):
        have = ", ".join(sorted(splits(ctx, name) or ())) or "none"
        hint = "; name another dataset with train_on" if split == "train" else ""
        raise Unavailable(f"{what} on split {split}, but dataset {name} has {have}{hint}")


def choose_dataset(
    named: str,
    stand_in: str | Mapping[str, str] | None,
    configured: str,
    of_table: Collection[str],
    otherwise: str,
) -> str:
    """Return our dataset for one that a paper names; both are names of the catalogue.

    `stand_in: squad` replaces all datasets of a paper by one, `stand_in: {msmarco: squad}` each by its own. A dataset
    that it does not name is searched itself if the configured dataset is one of the table's own, else `otherwise` is.

    Args:
        configured: the configuration's `dataset`.
        of_table: every dataset that the table names.
        otherwise: the dataset if none of these decides.
    """
    if isinstance(stand_in, str):
        return stand_in
    if stand_in and named in stand_in:
        return stand_in[named]
    return named if configured in of_table else otherwise


class StandIns:
    """The stand-ins of one configuration for the datasets of one layout."""

    def __init__(self, settings: Settings, datasets: Mapping[str, Dataset], layout: Layout) -> None:
        self.settings = settings
        self.datasets = datasets
        self.layout = layout

    def collection(self, dataset: str) -> str:
        """Return the collection of a dataset, under the layout's name.

        A dataset with queries without labels is of the collection of its passages. Datasets that the layout lists as
        the same are of one collection.
        """
        entry = self.datasets.get(dataset)
        if entry is not None and entry.collection_key:
            return self.collection(getattr(entry, entry.collection_key))
        for name, others in self.layout.same.items():
            if dataset in others:
                return name
        return dataset

    def searched(self, named: str, otherwise: str = "") -> str:
        """Return our dataset for one that the layout names; the default is `otherwise`, or the configured one.

        Nothing stands in for the datasets of a table that belongs to no paper.
        """
        searched = self.settings.dataset
        if not named or self.layout.printed_on is None:
            return named or searched
        configured = self.collection(searched)
        ours = choose_dataset(
            named, self.settings.stand_in, configured, self.layout.datasets, otherwise or searched
        )
        # perhaps under another name, as without labels
        is_searched_itself = ours == named == configured
        return searched if is_searched_itself else ours

    def changed(self, changes: Mapping[str, Any]) -> Json:
        """Return a row's changes of the configuration, with their datasets replaced by those that stand in."""
        changed = dict(changes)
        for path, value in changes.items():
            if value and has_dataset(path):
                changed[path] = self.searched(value, self.settings.train_on or "")
        return changed
