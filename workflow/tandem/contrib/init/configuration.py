"""The configuration that `init` writes: an experiment that the splits allow, with sizes for the machine and encoder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tandem import ROOT
from tandem.config.datasets import dataset_format
from tandem.config.loading import load_settings
from tandem.config.merging import Raw, gathered, merged
from tandem.contrib.init.look import SHARES, FoundMachine, Look
from tandem.errors import UserError, printable
from tandem.extras.estimate.resources import TYPICAL_WEB_LENGTHS, estimate_mean_tokens
from tandem.extras.file_columns import FileColumns, name_alike
from tandem.models.described import describe_towers
from tandem.models.folders import find_encoder_files, list_own_files, read_positions
from tandem.models.ragged import round_up
from tandem.plan.graph import Stages
from tandem.plan.planner import Planner
from tandem.plan.sizes import EncoderShape, shape_of
from tandem.plan.towers import HUB, entry_of_hub, towers

# Languages for which Anserini has analyzers; texts in other languages are split at white space.
ANALYZED = "ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv te th tr uk zh"
BERT_BASE = EncoderShape(layers=12, hidden=768, feed_forward=3072, vocabulary=30522)
_SPECIAL_TOKENS = 3  # special tokens of a query and passage that are read together
BYTES_PER_TOKEN = 3  # of a prompt; tokenizers rarely use fewer
GRAPH_TOKENS = 131_072  # at most; more tokens at once gain nothing
FEWEST_TOKENS = 2048
# from this dimension of the states on, the learning rates of small encoders are too high
_LARGE_HIDDEN_SIZE = 512
_USUAL_ENCODERS = {"en": "minilm", "zh": "bert-base-chinese"}
_MULTILINGUAL_ENCODER = "bert-base-multilingual-cased"
# Lines that a configuration without labelled training queries may contain in place of its table, to train anyway.
NO_LABELS = [
    "# without labels, from queries that a generator writes (docs/generation.md): these instead of `tables`",
    "# recipes: [dureader_retrieval, rocketqav2, no_labels]",
    "# tables: [no_labels]",
    "# generations: {no_labels: {by: query-gen}}  # or an entry of generators, also behind a server",
]


@dataclass(frozen=True)
class StartingEncoder:
    """An encoder as a configuration names it."""

    name: str  # value of `encoder`
    entry: Raw = field(default_factory=dict)  # of `encoders:`; empty if the name is enough
    # how vectors are computed, from its entry or its own files
    vectors: Raw = field(default_factory=dict)
    shape: EncoderShape | None = None  # its sizes; None if they are unknown
    zero_shot: bool = True  # whether its vectors are worth a row without training

    def __str__(self) -> str:
        """Return its name and how its vectors are computed."""
        vectors = {key: value for key, value in self.vectors.items() if value not in (None, {}, [])}
        texts = ", ".join(
            f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in vectors.items()
        )
        return f"{self.name}: {texts or 'does not describe its vectors; pooling cls is taken'}".replace(
            '"', ""
        )


def find_starting_encoder(name: str, language: str) -> StartingEncoder:
    """Return the encoder with this name or, without a name, the usual encoder of the language.

    Raises:
        UserError: the name is unknown, a folder has no safetensors, files describe an encoder that is not supported,
            or the files of a name on the hub are unavailable.
    """
    chosen = name or _USUAL_ENCODERS.get(language, _MULTILINGUAL_ENCODER)
    config, entry = gathered([], ROOT), {}
    known = load_settings(config, ROOT).encoders
    here = chosen in known or Path(chosen).is_dir()
    if not here and (key := entry_of_hub(known, chosen)):
        chosen = key
    elif not here and HUB.fullmatch(chosen) and (entry := read_hub_entry(chosen)):
        chosen = chosen.rpartition("/")[2]
    planner = Planner(
        load_settings(merged(config, {"encoders": {chosen: entry} if entry else {}}), ROOT),
        Stages(),
    )
    stage, vectors = planner.encoder(chosen), towers(planner.ctx, chosen)
    try:
        shape = shape_of(stage, planner.settings)
    except UserError:
        shape = None
    zero_shot = "pooling" in vectors and (bool(name) or "normalize" in vectors)
    return StartingEncoder(chosen, entry, vectors, shape, zero_shot)


def list_describing_files() -> list[str]:
    """Return the patterns of a model's small files that describe it."""
    return ["*config*.json", "modules.json", *list_own_files()]


def read_hub_entry(name: str) -> Raw:
    """Read the entry of a model on the hub at its current commit from its small files; empty if unavailable."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(name, allow_patterns=list_describing_files(), etag_timeout=10)
        )
        config = json.loads(
            (find_encoder_files(folder) / "config.json").read_text(encoding="utf-8")
        )
        shape = asdict(EncoderShape.of(config)) | {"positions": read_positions(config)}
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError, KeyError):
        return {}
    return {
        "source": "hub",
        "name": name,
        "revision": folder.name,
        **describe_towers(folder),
        "shape": shape,
    }


@dataclass(frozen=True)
class Sizes:
    """Sizes of a first experiment that a machine can run: trainings of minutes on two cores, or on one GPU."""

    queries: dict[str, int]  # split → queries that are taken in any case, whatever they cost
    passage: int  # the longest passage, in tokens
    rerank: int  # passages of a query that are re-ranked
    # minutes of each training on two CPU cores; a GPU needs a thousandth of the time
    minutes: dict[str, int]
    # training queries for which the joint model's lists are drawn and judged; None: all
    judged: int | None
    train: dict[str, int]  # further keys of every model's `train`


CPU = Sizes(
    queries={"train": 5_000, "dev": 500, "test": 1_000},
    passage=192,
    rerank=10,
    minutes={"de_bm25neg": 5, "ce_bm25neg": 10, "ce_deneg": 10, "rocketqav2": 10},
    judged=1_000,
    train={},
)
GPU = Sizes(
    queries={"train": 50_000, "dev": 2_000, "test": 10_000},
    passage=384,
    rerank=50,
    minutes={"de_bm25neg": 3_000, "ce_bm25neg": 6_000, "ce_deneg": 6_000, "rocketqav2": 6_000},
    judged=None,
    train={"queries_per_batch": 64, "list_size": 8},
)


def choose_lengths(
    look: Look, language: str, sizes: Sizes, shape: EncoderShape, prompts: Mapping[str, str]
) -> dict[str, int]:
    """Return the longest query and passage in tokens; nine of ten texts are not cut, if machine and encoder allow it.

    `prompts` are the encoder's, by side: they are put in front of the texts, and count.
    """

    def rounded(side: str, step: int, most: int) -> int:
        """Return a side's length in tokens, a multiple of `step`, that nine of ten texts with prompt do not exceed."""
        tokens = min(
            most,
            int(
                estimate_mean_tokens(look.lengths[side], TYPICAL_WEB_LENGTHS[side], language, "p90")
            ),
        )
        prompt = -(-len(prompts.get(side, "").encode()) // BYTES_PER_TOKEN)
        return max(2 * step, round_up(tokens + prompt, step))

    query, passage = rounded("query", 8, 64), rounded("passage", 16, sizes.passage)
    return {"query": query, "passage": min(passage, shape.positions - query - _SPECIAL_TOKENS - 2)}


def choose_execution(machine: FoundMachine, shape: EncoderShape, passage: int) -> dict[str, Any]:
    """Return how many tokens a GPU processes at once: their activations fill half of its memory; {} without a GPU."""
    if not machine.gpu:
        return {}
    graph = GRAPH_TOKENS
    while graph > FEWEST_TOKENS and shape.activations(graph, passage) > machine.gpu_memory / 2:
        graph //= 2
    return {"micro_tokens": min(16_384, graph), "graph_tokens": graph, "hardware": "h200"}


@dataclass(frozen=True)
class Experiment:
    """The experiment that a collection's splits allow."""

    sentence: str  # the experiment in words
    table: str = "summary"  # the table of systems
    trains: bool = True  # whether models are trained
    choose: str = "dev"  # how a training's checkpoint is chosen
    keys: dict[str, Any] = field(default_factory=dict)  # of the dataset's entry


@dataclass(frozen=True)
class Choices:
    """Everything that the file contains; `entry` is the dataset's source with its keys."""

    name: str
    entry: Raw
    language: str
    collection: Look
    encoder: StartingEncoder
    machine: FoundMachine
    unread: Sequence[str] = ()  # names of files that look like data and are not read

    @property
    def fitting(self) -> Sizes:
        """Return the sizes for the machine."""
        return GPU if self.machine.gpu else CPU

    @property
    def experiment(self) -> Experiment:
        """Return the experiment that the splits and the encoder allow."""
        return choose_experiment(self.collection, self.encoder.zero_shot)


def choose_experiment(collection: Look, zero_shot: bool) -> Experiment:
    """Return an experiment that trains if training queries have labels.

    It scores test, else dev, else another split, else a share of train.

    Args:
        zero_shot: whether the encoder is worth a row without training.
    Raises:
        UserError: nothing can be scored.
    """
    unlabelled, trains = collection.list_unlabelled(), collection.positives.get("train", 0) > 0
    queries = [split for split in collection.queries if split not in unlabelled]
    share = None if "dev" in unlabelled else collection.dev_share
    scored = next(
        (split for split in ("test", "dev", *queries) if split in queries and split != "train"),
        None,
    )
    if scored is None:
        if not trains:
            raise UserError(
                "qrels: no query has a relevant passage; nothing can be trained or scored"
            )
        if "dev" in unlabelled:
            raise UserError(
                "qrels: train alone has relevant passages, and dev is there; label it, or leave it out"
            )
        if share is None:
            count = collection.positives["train"]
            raise UserError(
                f"qrels: {count} training queries have a relevant passage; too few to draw dev from them"
            )
        sentence = f"train alone: every system is trained; {share:.0%} of the queries become dev, which is scored"
        of_dev = {"score_split": "dev"} if "test" in unlabelled else {}
        return Experiment(sentence, choose="last", keys={"dev_from_train": share, **of_dev})
    named = " and ".join(queries)
    usual = "test" if "test" in collection.queries else "dev"
    keys: dict[str, Any] = {} if scored == usual else {"score_split": scored}
    if not collection.positives.get(scored):
        keys["relevance"] = "answers"
    if not trains and "train" in queries:
        sentence = f"{named}: BM25 alone; train has no labels (docs/recipes.md: candidates.labels), {scored} is scored"
        return Experiment(sentence, "baseline", False, keys=keys)
    if not trains and not zero_shot:
        sentence = f"{named} alone: BM25; no encoder trained for retrieval is named (--encoder)"
        return Experiment(sentence, "baseline", False, keys=keys)
    if not trains:
        return Experiment(
            f"{named} alone: BM25 and the encoder as it is (zero-shot); the file offers training without labels",
            trains=False,
            keys=keys,
        )
    if scored == "dev":
        sentence = f"{named}: every system is trained; dev is scored, so it chooses no checkpoint"
        return Experiment(sentence, choose="last", keys=keys)
    sentence = f"{named}: every system is trained, and scored on {scored}"
    if "dev" not in queries and share is None:
        lacks = "dev has no labels" if unlabelled else "train has too few queries to draw dev from"
        few = f"{lacks}, so no checkpoint is chosen"
        return Experiment(f"{sentence}; {few}", choose="last", keys=keys)
    if "dev" not in queries and share != SHARES[0]:  # which planning would draw
        keys["dev_from_train"] = share
    return Experiment(sentence, keys=keys)


def compose_configuration(
    choices: Choices, queries: Mapping[str, int], reasons: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Compose the text of the file.

    Args:
        queries: the most queries that are taken, by split; splits without an entry are taken whole.
        reasons: the reason for the number, by split; splits that are taken whole may have one, too.
    """
    collection, encoder = choices.collection, choices.encoder
    shape = encoder.shape or BERT_BASE
    longest = choose_lengths(
        collection, choices.language, choices.fitting, shape, encoder.vectors.get("prompts", {})
    )
    how = choose_execution(choices.machine, shape, longest["passage"])
    lines = [
        "# Written by `tandem init`. Every key with its default: docs/configuration.md",
        *_list_plugin_lines(choices.entry["source"]),
        f"dataset: {format_yaml(choices.name)}",
        "datasets:",
        f"  {format_yaml(choices.name)}:",
        *(f"    {line}" for line in _list_dataset_lines(choices, queries, reasons)),
        f"encoder: {format_yaml(encoder.name)}",
        *(
            [f"encoders: {{{format_yaml(encoder.name)}: {format_yaml(encoder.entry)}}}"]
            if encoder.entry
            else []
        ),
        f"tables: [{choices.experiment.table}]",
        f"lengths: {format_yaml(longest)}  # tokens; longer texts are cut",
    ]
    if choices.experiment.trains:
        lines.append(
            f"rerank: {{depth: {choices.fitting.rerank}}}  # passages of a query that cross-encoders score"
        )
        gpu = ", of which a GPU needs a thousandth" if choices.machine.gpu else ""
        lines.append(
            f"models:  # each is trained for at most so many minutes of two CPU cores{gpu}"
        )
        for model, minutes in choices.fitting.minutes.items():
            train: dict[str, Any] = {"choose": choices.experiment.choose, "budget_minutes": minutes}
            train |= (
                {"lr": 2.0e-5} if shape.hidden >= _LARGE_HIDDEN_SIZE else {}
            ) | choices.fitting.train
            drawn = format_yaml({"queries": choices.fitting.judged})
            lists = f"candidates: {drawn}, " if model == "rocketqav2" else ""
            lines.append(f"  {model}: {{{lists}train: {format_yaml(train)}}}")
    else:
        lines += NO_LABELS
    lines += [f"execution: {format_yaml(how)}  # by the GPU's memory"] if how else []
    return "\n".join(lines) + "\n"


def _list_plugin_lines(source: str) -> list[str]:
    """Return the line that names the plugin which reads a source; none for Tandem's own formats."""
    plugin = dataset_format.plugin(source)
    if plugin is None:
        return []
    is_file_here = not plugin.name and plugin.path.is_relative_to(Path.cwd())
    name = str(plugin.path.relative_to(Path.cwd())) if is_file_here else plugin.source
    return [f"plugins: {format_yaml([name])}"]


def _list_dataset_lines(
    choices: Choices, queries: Mapping[str, int], reasons: Mapping[str, str]
) -> list[str]:
    collection, language = choices.collection, choices.language
    counts = {
        **({"passages": collection.passages} if collection.whole else {}),
        **collection.queries,
    }
    counted = collection.lengths
    tokens = {
        side: round(estimate_mean_tokens(counted[side], TYPICAL_WEB_LENGTHS[side], language))
        for side in ("passage", "query")
    }
    lines = [f"{key}: {format_yaml(value)}" for key, value in choices.entry.items()]
    lines += list_unread_lines(collection.columns)
    lines.append(f"language: {format_yaml(language)}")
    lines += (
        []
        if language in ANALYZED.split()
        else ["analyzer: whitespace  # there is no other for this language"]
    )
    lines.append(f"counts: {format_yaml(counts)}  # others are a warning")
    lines.append(f"tokens: {format_yaml(tokens)}  # mean of a text, for estimates")
    lines += [f"{key}: {format_yaml(value)}" for key, value in choices.experiment.keys.items()]
    drawn = choices.experiment.keys.get("dev_from_train", 0) * collection.queries.get("train", 0)
    most = choices.fitting.queries["dev"]
    if drawn > most:
        lines.append(f"dev_from_train_most: {most}  # without this line about {drawn:,.0f}")
    lines += (
        ["ignore_identical_ids: true  # no query finds itself"] if collection.own_passages else []
    )
    lines += (
        ["unknown_documents: drop  # most qrels of a split name no passage"]
        if collection.drop_unknown
        else []
    )
    for split, most in queries.items():
        reason = f"; {reasons[split]}" if split in reasons else ""
        lines.append(
            f"{split}_queries: {most}  # without this line all {collection.queries[split]:,}{reason}"
        )
    whole = (split for split in reasons if split not in queries)
    lines += [
        f"# {split}_queries: {choices.fitting.queries[split]}  # {reasons[split]}"
        for split in whole
    ]
    return lines


def list_unread_lines(columns: Sequence[FileColumns]) -> list[str]:
    """Return a comment for each file, or group of similar files, with columns that are not read."""
    lines = []
    for names, alike in name_alike(columns):
        if unread := alike.describe_unread():
            lines.append(f"# not read of {', '.join(map(printable, names))}: {unread}")
    return lines


def format_yaml(value: object) -> str:
    """Return a value on one line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=inf
    )
    return text.strip().removesuffix("...").strip()
