"""The whole configuration: all keys, their types and defaults; and how stages run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    SerializeAsAny,
    create_model,
)

from tandem.config.base import Choice, Distinct, Items, Section, Seed
from tandem.config.datasets import Dataset
from tandem.config.encoders import EncoderEntry, Reranker
from tandem.config.indexes import AnyIndex
from tandem.config.models import ModelEntry, ValidationSettings
from tandem.config.references import DatasetRef, RunRef
from tandem.config.retrieval import (
    Bm25,
    Depth,
    Encode,
    Ensemble,
    Lengths,
    Rerank,
    Scorer,
    Sparse,
    search_engine,
)
from tandem.config.table_layouts import Score
from tandem.errors import UserError, printable
from tandem.plugins import Declarations

# and those that plugins add: `catalogues`
CATALOGUES = ("datasets", "encoders", "indexes", "rerankers")
_SectionType = TypeVar("_SectionType")

HEAP = "2g"  # of Java, for 8.8 million passages: Lucene maps its files into memory outside the heap


class Mirror(Section):
    """Another place for downloads."""

    from_: str = Field(alias="from", description="the beginning of a URL")
    to: str = Field(description="what replaces it")


class Training(Section):
    """How trainings and encoders use their devices."""

    micro_tokens: int = Field(2048, ge=64, description="tokens per forward and backward pass")
    graph_tokens: int = Field(
        16384, ge=64, description="tokens whose graph is kept in memory at once"
    )
    attention: Literal["auto", "padded", "packed"] = Field(
        "auto", description="auto: packed in bf16 on CUDA"
    )
    compile: Literal["auto", "always", "never"] = Field(
        "auto", description="torch.compile; auto: where packed on CUDA"
    )
    checkpoint_seconds: float = Field(
        60.0, ge=0, description="seconds between two saved states of a training"
    )
    stop_seconds: float = Field(
        120.0, ge=0, description="a training is requeued this long before its slurm job ends"
    )
    devices: int = Field(
        1, ge=1, description="GPUs of a training; on a machine without GPUs, processes"
    )
    nodes: int = Field(
        1, ge=1, description="machines of a training, each with that many devices; needs slurm"
    )


class ExecutionSettings(Training):
    """The configuration's `execution` block."""

    shards: int = Field(1, ge=1, description="jobs that share the work of a stage")
    engine: Annotated[str, Choice(("auto",), search_engine)] = Field(
        "auto", description="of exact search; auto: torch on CUDA"
    )
    search_memory: int | None = Field(
        None,
        ge=16,
        description="MiB that an exact search may hold; null: 2,048; on a GPU a third of its memory",
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of a job; null: all cores, one job at a time"
    )
    index_gpu: Literal["none", "replicate", "shard"] = Field(
        "none", description="indexes on `devices` GPUs"
    )
    hardware: str = Field(
        "cpu", description="entry of config/hardware/ that `estimate` calculates with"
    )
    mirrors: Items[Mirror] = Field((), description="other places for downloads, tried in order")


class Execution(ExecutionSettings):
    """How one job runs, as its command line states it: the configuration's block and the job's own options.

    A stage gets only the options that it uses (`--run.<name>`); the others keep their defaults.
    """

    model_config = ConfigDict(strict=False)

    workers: int | None = Field(
        None, ge=1, description="CPU threads of this job; null: as many as cores"
    )
    shard: int | None = Field(
        None, ge=0, description="which shard this job computes, counted from 0"
    )
    path: str | None = Field(None, description="folder or file of the source")
    name: str | None = Field(None, description="name of the source")
    files: tuple[dict[str, object], ...] | dict[str, object] | None = Field(
        None, description="files of the source"
    )
    checksum: str | None = Field(None, description="sha256 of the source")
    licence: str | None = Field(None, description="licence of the source, carried into model cards")
    vectors: dict[str, object] | None = Field(
        None, description="of an encoder: how its models make vectors, as its files describe it"
    )
    plugins: Items[str] = Field((), description="files of the plugins that the stage uses")
    heap: str | None = Field(None, description="memory of Java, as its -Xmx has it")
    endpoint: dict[str, object] | None = Field(
        None, description="of a language model that a server runs: how it is queried"
    )
    counts: dict[str, int] | None = Field(
        None, description="how much the source is expected to hold"
    )


class Settings(Section):
    """A configuration with recipes, catalogues and defaults filled in."""

    dataset: DatasetRef = Field(
        description="the dataset that is searched: name in `datasets` or config/datasets/"
    )
    encoder: str = Field(
        description="what models start from: a name in `encoders`, a folder, or org/name on the hub"
    )
    seed: int = Field(42, ge=0, description="of everything random that has no seed of its own")
    seeds: Distinct[Seed] | None = Field(
        None, description="tables' rows are planned once per seed; null: only `seed`"
    )
    stand_in: str | dict[str, str] | None = Field(
        None, description="dataset searched instead of papers' datasets, or one for each of them"
    )
    train_on: str | None = Field(
        None, description="dataset of models that name none; null: the one that is searched"
    )
    recipes: Items[str] = Field(
        (),
        description="files of config/recipes/, each merged over those before it and those that it names",
    )
    plugins: Items[str] = Field(
        (), description="files, or names of installed plugins, that add losses, formats, stages"
    )
    bm25: Bm25 = Field(Bm25(), description="BM25")
    sparse: dict[str, Sparse] = Field(
        {}, description="variants of bm25, usable wherever a run's name is"
    )
    depth: Depth = Field(Depth(), description="passages per query of the runs, by split")
    rerank: Rerank = Field(Rerank(), description="re-ranking")
    lengths: Lengths = Field(Lengths(), description="longest texts, in tokens")
    encode: Encode = Field(Encode(), description="vectors of queries and passages")
    score: Score = Field(Score(), description="what is measured")
    ensembles: dict[str, Ensemble] = Field(
        {}, description="several cross-encoders, usable as one that scores pairs"
    )
    scorers: dict[str, Scorer] = Field(
        {}, description="plugins' scorers, usable where a cross-encoder re-ranks"
    )
    validation: ValidationSettings = Field(
        ValidationSettings(), description="how checkpoints are validated"
    )
    indexes: dict[str, SerializeAsAny[AnyIndex]] = Field(
        {}, description="also config/indexes/; `<dual encoder>@<name>` is a run"
    )
    models: dict[str, ModelEntry] = Field(
        {}, description="trained models; null leaves out a recipe's, `like` names a base"
    )
    datasets: dict[str, SerializeAsAny[Dataset]] = Field(
        {}, description="datasets, also those of config/datasets/"
    )
    encoders: dict[str, EncoderEntry] = Field(
        {}, description="starting encoders, also those of config/encoders/"
    )
    rerankers: dict[str, Reranker] = Field(
        {},
        description="published cross-encoders, also those of config/rerankers/; named wherever a trained one is",
    )
    tables: Items[str] = Field(
        (), description="targets of `rule all`: paper/table of config/papers/, or a layout file"
    )
    systems: Items[RunRef] = Field(
        (), description="further runs that are targets, as `tandem search` needs"
    )
    execution: ExecutionSettings = Field(
        ExecutionSettings(), description="how to run; in no key, changes no result"
    )

    def section(self, name: str, kind: type[_SectionType]) -> _SectionType:
        """Return the value of a key that a plugin adds by `register_section`, with the type that it has there."""
        value = getattr(self, name)
        assert isinstance(value, kind)
        return value

    def entries(self, block: str, kind: type[_SectionType]) -> dict[str, _SectionType]:
        """Return the entries of a block, all of one type; an empty mapping if no plugin adds the block."""
        entries: dict[str, _SectionType] = getattr(self, block, {})
        assert all(isinstance(entry, kind) for entry in entries.values())
        return entries


@dataclass(frozen=True)
class Block:
    """Describe a key whose value maps names to entries of several classes.

    Attributes:
        by: the key of an entry that chooses its class: its source, method or type.
        classes: the class of an entry, by the value of that key.
        common: base classes whose keys the reference lists once for all classes that share them.
        is_catalogue: whether the folder config/<name of the key>/ has entries that every configuration may name.
    """

    by: str
    classes: Mapping[str, type[Section]]
    common: tuple[type[Section], ...] = ()
    is_catalogue: bool = False


class AddedKey(NamedTuple):
    """A key of the configuration that a plugin adds."""

    annotation: Any
    default: Any
    description: str
    block: Block | None


_ADDED_KEYS: Declarations[AddedKey] = Declarations()
# Keys that state what one run asks for; a layout does not take them over from the configuration files that it names.
RUN_KEYS = {"tables", "systems", "execution", "seed", "seeds"}


def register_section(
    name: str,
    annotation: Any,
    default: Any,
    description: str,
    block: Block | None = None,
    *,
    of_run: bool = False,
) -> None:
    """Add a key of the configuration: a section, or a mapping from names to sections.

    Args:
        annotation: its type: `Honey`, `dict[str, Hive]`.
        default: its value in a configuration that does not name it.
        block: for a mapping to entries of several classes: how these are distinguished.
        of_run: whether it states what one run asks for, and so belongs to `RUN_KEYS`.
    Raises:
        UserError: the name is taken, or is not a valid name.
    """
    if name in Settings.model_fields or name in _ADDED_KEYS:
        raise UserError(f"key {name} is registered twice; rename one of them")
    if not name.isidentifier() or hasattr(Settings, name):
        raise UserError(
            f"key {printable(name)}: allowed are letters, digits and _, and no name of pydantic's"
        )
    _ADDED_KEYS[name] = AddedKey(annotation, default, description, block)
    if of_run:
        RUN_KEYS.add(name)


def added_blocks() -> dict[str, Block]:
    """Return key → block for plugins' keys whose entries are of several classes."""
    return {name: key.block for name, key in _ADDED_KEYS.items() if key.block is not None}


def catalogues() -> tuple[str, ...]:
    """Return the keys for which a folder of config/ has entries that every configuration may name."""
    return (*CATALOGUES, *(name for name, block in added_blocks().items() if block.is_catalogue))


def settings_model() -> type[Settings]:
    """Return the settings with the keys that plugins add, those of the packages of `contrib/` among them."""
    return _extend_settings(tuple(_ADDED_KEYS))


@cache
def _extend_settings(added: tuple[str, ...]) -> type[Settings]:
    if not added:
        return Settings
    fields: dict[str, Any] = {}
    for name in added:
        key = _ADDED_KEYS[name]
        fields[name] = (key.annotation, Field(key.default, description=key.description))
    return create_model(
        "Settings", __base__=Settings, __doc__=Settings.__doc__, __module__=__name__, **fields
    )
