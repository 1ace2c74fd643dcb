"""The configuration that `init` writes: what a collection's splits allow, and the file with sizes for a machine."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

import yaml

from tandem.errors import UserError
from tandem.extras.estimate.resources import tokens_of
from tandem.extras.init import sizes
from tandem.extras.init.encoder import StartingEncoder
from tandem.extras.init.look import Look
from tandem.extras.init.sizes import Machine

# What Anserini has analyzers for; other languages are split at white space.
ANALYZED = "ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv te th tr uk zh"
DEV_SHARE = 0.1  # of the training queries, where nothing else can be scored


@dataclass(frozen=True)
class Experiment:
    """What a collection's splits allow.

    Attributes:
        sentence: that in words.
        table: the table of systems.
        trains: whether models are trained.
        choose: how a training's checkpoint is chosen.
        keys: of the dataset's entry.
    """

    sentence: str
    table: str = "summary"
    trains: bool = True
    choose: str = "dev"
    keys: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """Everything that the file says; `entry` is the dataset's source with its keys."""

    name: str
    entry: dict[str, Any]
    language: str
    collection: Look
    encoder: StartingEncoder
    machine: Machine

    @property
    def fitting(self) -> sizes.Sizes:
        """The sizes for the machine."""
        return sizes.GPU if self.machine.gpu else sizes.CPU

    @property
    def experiment(self) -> Experiment:
        """What the splits and the encoder allow."""
        return experiment(self.collection, self.encoder.zero_shot)


def experiment(collection: Look, zero_shot: bool) -> Experiment:
    """Train where training queries have labels; score test, else dev, else another split, else a share of train.

    Args:
        zero_shot: whether the encoder is worth a row without training.
    Raises:
        UserError: nothing can be scored.
    """
    splits = [
        split for split in ("test", "dev", *collection.queries) if split in collection.queries and split != "train"
    ]
    trains, named = collection.positives.get("train", 0) > 0, " and ".join(collection.queries)
    if not splits:
        if not trains:
            raise UserError("qrels: no query has a relevant passage; nothing can be trained or scored")
        sentence = "train alone: every system is trained; a tenth of the queries becomes dev, which is scored"
        return Experiment(sentence, choose="last", keys={"dev_from_train": DEV_SHARE})
    scored = splits[0]
    keys: dict[str, Any] = {} if scored in ("test", "dev") else {"score_split": scored}
    if not collection.positives.get(scored):
        keys["relevance"] = "answers"
    if not trains and "train" in collection.queries:
        sentence = f"{named}: BM25 alone; train has no labels (docs/recipes.md: candidates.labels), {scored} is scored"
        return Experiment(sentence, "baseline", False, keys=keys)
    if not trains and not zero_shot:
        sentence = f"{named} alone: BM25; no encoder trained for retrieval is named (--encoder)"
        return Experiment(sentence, "baseline", False, keys=keys)
    if not trains:
        return Experiment(f"{named} alone: BM25 and the encoder as it is (zero-shot)", trains=False, keys=keys)
    if scored == "dev":
        sentence = f"{named}: every system is trained; dev is scored, so it chooses no checkpoint"
        return Experiment(sentence, choose="last", keys=keys)
    return Experiment(f"{named}: every system is trained, and scored on {scored}", keys=keys)


def compose(choices: Choices) -> str:
    """The text of the file."""
    collection, encoder = choices.collection, choices.encoder
    shape = encoder.shape or sizes.BERT_BASE
    longest = sizes.lengths(collection, choices.fitting, shape)
    how = sizes.execution(choices.machine, shape, longest["passage"])
    lines = [
        "# Written by `tandem init`. Every key with its default: docs/configuration.md",
        f"dataset: {flow(choices.name)}",
        "datasets:",
        f"  {flow(choices.name)}:",
        *(f"    {line}" for line in _dataset_lines(choices)),
        f"encoder: {flow(encoder.name)}",
        *([f"encoders: {{{flow(encoder.name)}: {flow(encoder.entry)}}}"] if encoder.entry else []),
        f"tables: [{choices.experiment.table}]",
        f"lengths: {flow(longest)}  # tokens; longer texts are cut",
    ]
    if choices.experiment.trains:
        lines.append(f"rerank: {{depth: {choices.fitting.rerank}}}  # passages of a query that cross-encoders score")
        gpu = ", of which a GPU needs a thousandth" if choices.machine.gpu else ""
        lines.append(f"models:  # each is trained for at most so many minutes of two CPU cores{gpu}")
        for model in choices.fitting.minutes:
            train = flow(sizes.train_keys(choices.fitting, model, shape, choices.experiment.choose))
            lists = "candidates: {queries: null}, " if model == "rocketqav2" else ""
            lines.append(f"  {model}: {{{lists}train: {train}}}")
    lines += [f"execution: {flow(how)}  # by the GPU's memory"] if how else []
    return "\n".join(lines) + "\n"


def _dataset_lines(choices: Choices) -> list[str]:
    """The dataset's entry."""
    collection, language = choices.collection, choices.language
    counts = {**({"passages": collection.passages} if collection.whole else {}), **collection.queries}
    tokens = {side: round(tokens_of(collection.lengths[side], sizes.TYPICAL[side])) for side in ("passage", "query")}
    lines = [f"{key}: {flow(value)}" for key, value in choices.entry.items()]
    lines.append(f"language: {flow(language)}")
    lines += [] if language in ANALYZED.split() else ["analyzer: whitespace  # there is no other for this language"]
    lines.append(f"counts: {flow(counts)}  # others are a warning")
    lines.append(f"tokens: {flow(tokens)}  # mean of a text, for estimates")
    lines += [f"{key}: {flow(value)}" for key, value in choices.experiment.keys.items()]
    lines += ["unknown_documents: drop  # most qrels of a split name no passage"] if collection.drop_unknown else []
    for split, most in choices.fitting.queries.items():
        if collection.queries.get(split, 0) > most and (choices.experiment.trains or split != "train"):
            lines.append(f"{split}_queries: {most}  # without this line all {collection.queries[split]:,}")
    return lines


def flow(value: object) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=inf)
    return text.strip().removesuffix("...").strip()
