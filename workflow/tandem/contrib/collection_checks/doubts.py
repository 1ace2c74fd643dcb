"""Warnings about a dataset in the stages that use it: reasons why their results may be worse than necessary."""

from collections.abc import Iterator
from typing import Any

from tandem.extras.language import (
    LEAST_NAMED,
    MOST_OTHERS,
    describe_misfits,
    find_vocabulary_script,
)
from tandem.extras.own_passages import describe_own_passages
from tandem.stages.evaluation import ScoreParams
from tandem.store.job import Job


def list_misfits(job: Job[Any]) -> Iterator[str]:
    """Yield a line for passages, and one for queries, that are not in the language of their analysis."""
    analyzer: str = job.params.analyzer
    language: str = job.params.language
    if analyzer == "whitespace":
        return
    if analyzer == "jieba":
        language = "zh"
    for side, facts in job.inputs["dataset"].manifest.facts.get("texts", {}).items():
        others = describe_misfits(language, facts["languages"])
        if others:
            hint = "say the dataset's language, and perhaps its analyzer"
            yield f"the {side} are analysed as {language}, but look like {others}: {hint}"


def list_scripts(job: Job[Any], tokenizer: Any) -> Iterator[str]:
    """Yield a line if the script of the passages is not that of the pieces of a tokenizer's vocabulary."""
    texts = job.inputs["dataset"].manifest.facts.get("texts", {})
    scripts = texts.get("passages", {}).get("scripts", {})
    pieces = [tokenizer.convert_tokens_to_string([piece]) for piece in tokenizer.get_vocab()]
    own = find_vocabulary_script(pieces)
    others = {name: share for name, share in scripts.items() if name != own}
    if own is not None and sum(others.values()) > MOST_OTHERS:
        shares = ", ".join(
            f"{share:.0%} {name}" for name, share in others.items() if share >= LEAST_NAMED
        )
        yield f"the encoder's vocabulary is {own}, but the passages are {shares}: choose another encoder"


def list_own_passages(job: Job[ScoreParams]) -> Iterator[str]:
    """Yield a line if most of the queries are passages of the dataset, each of which finds itself."""
    if job.params.ignore_identical_ids or job.params.members is not None:
        return
    facts = job.inputs["dataset"].manifest.facts
    split = job.params.split
    count = facts.get("own_passages", {}).get(split, 0)
    line = describe_own_passages(count, facts["queries"][split], split) if count else ""
    if line:
        yield line
