"""A researcher's own file, `plugins: [my_ideas.py]`: a loss, a format, negatives, a scorer, a stage, a command.

Everything registers by the calls that Tandem's own modules use. Heavy imports (torch) stand inside functions, so that
planning stays quick.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tandem.commands import DATA, Command, register_command
from tandem.config.datasets import Dataset
from tandem.config.losses import supervision
from tandem.data.dataset_files import DatasetFiles
from tandem.data.sources import DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.errors import UserError
from tandem.extras.estimate.resources import PROCESS_BYTES, Setting, Work, cost, params_of
from tandem.plan.graph import Stage
from tandem.stages import Kind, Params, register_stage
from tandem.stages.negatives import negatives
from tandem.stages.retrieval import pair_scorer
from tandem.store.job import Job, writing

if TYPE_CHECKING:
    from torch import Tensor


@supervision("softplus_margin")
def softplus_margin(scores: "Tensor", mask: "Tensor", *, margin: float = 1.0) -> "Tensor":
    """log(1 + exp(m - (s(q, p+) - s(q, p-)))), averaged over each query's negatives, summed over queries.

    A smooth hinge loss. The positive stands first in each list.

    Args:
        scores: shape (queries, passages).
        mask: True where a passage stands, same shape.
        margin: in the unit of the scores.
    """
    from torch.nn.functional import softplus

    there = mask[:, 1:]
    terms = softplus(margin - (scores[:, :1] - scores[:, 1:])).masked_fill(~there, 0.0)
    return (terms.sum(1) / there.sum(1).clamp(min=1)).sum()


COLUMNS = ("question", "answer", "split")


def read_questions(table: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file.

    Raises:
        UserError: it is no such file, or lacks a column; `tandem` prints it as one line, without a traceback.
    """
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            absent = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if absent:
                raise UserError(f"{table}: has no column {absent[0]}; needed: {', '.join(COLUMNS)}")
            return list(reader)
    except OSError as error:
        raise UserError(f"{table}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table}: is not a CSV file in UTF-8 ({error})") from None


class QuestionsCsv(Dataset):
    """The keys of `source: questions_csv`: one file with the columns question, answer, split."""

    file_keys = ("table",)  # the file is part of the dataset's key, others in `path` are not

    source: Literal["questions_csv"]
    table: str = Field(description="the CSV file, in `path`")


@dataset_format("questions_csv")
class Questions(Source):
    """Every answer is a passage, and relevant to its question alone."""

    def __init__(self, job: DatasetJob, entry: QuestionsCsv) -> None:
        super().__init__(job, entry)
        path = DatasetFiles(job).find(entry.table)
        self.rows = read_questions(path)
        self.places = {"corpus": str(path), "queries": str(path)}

    def read_corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every answer."""
        return ((f"a{n}", "", row["answer"]) for n, row in enumerate(self.rows))

    def read_queries(self) -> Iterator[Query]:
        """(query id, text, split) of every question."""
        return ((f"q{n}", row["question"], row["split"]) for n, row in enumerate(self.rows))

    def read_qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split)."""
        return ((f"q{n}", f"a{n}", 1, row["split"]) for n, row in enumerate(self.rows))


@negatives("neighbours")
def neighbours(job: Job[Any], labels: Any, docs: Any, queries: Any) -> Iterator[tuple[Any, ...]]:
    """The passages that stand next to a query's own row in the corpus."""
    import numpy as np

    for query, row in zip(labels.queries, queries.rows(labels.queries), strict=True):
        near = np.arange(row + 1, row + 1 + job.params.depth) % len(docs)
        yield query, [], near, np.full(len(near), np.nan, np.float32)


@pair_scorer("shared_words")
def shared_words(query: str, passages: list[str], *, weight: float = 1.0) -> list[float]:
    """Score each of a query's passages by the words that it shares with the query."""
    words = set(query.lower().split())
    return [weight * len(words & set(passage.lower().split())) for passage in passages]


class ShortestFirst(Params):
    """Parameters of the stage `shortest_first`."""

    split: str = Field(description="the queries' split")
    depth: int = Field(ge=1, description="passages per query")
    weight: float = Field(
        1.0, gt=0, description="weight of a passage's length against the score of the input run"
    )


def run_shortest_first(job: Job[ShortestFirst]) -> None:
    """Re-rank the input `run`: a passage loses `weight` points per word."""
    from tandem.data.collection import Collection
    from tandem.data.runs import iter_run, order_by_score, write_run

    collection = Collection(job.inputs["dataset"])

    def reranked() -> Iterator[tuple[str, list[str], list[float]]]:
        """Query by query: documents and scores, the best first."""
        for query, docs, scores in iter_run(job.inputs["run"], job.inputs["dataset"]):
            texts = collection.texts(docs)
            words = [len(" ".join(texts[doc]).split()) for doc in docs]
            own = [
                score - job.params.weight * count
                for score, count in zip(scores, words, strict=True)
            ]
            best = order_by_score(docs, own)[: job.params.depth]
            yield query, [doc for doc, _ in best], [score for _, score in best]

    with writing(job) as draft:
        draft.facts["lines"] = write_run(job, draft, reranked())


register_stage(Kind(name="shortest_first", run=run_shortest_first, params=ShortestFirst))


@cost("shortest_first")
def estimate_shortest_first(stage: Stage, setting: Setting) -> Work:
    """Estimate reading the lines of the input run and writing those that are kept."""
    lines = setting.queries(stage) * params_of(stage.upstream["run"]).depth
    return Work(rows=(("lines", lines),), memory=PROCESS_BYTES, run=setting.run(stage))


def count_questions(table: Path, /) -> None:
    """Print how many questions of each split a file of `source: questions_csv` has.

    Args:
        table: the CSV file.
    """
    splits = Counter(row["split"] for row in read_questions(table))
    for split, count in sorted(splits.items()):
        print(f"{split}: {count:,}")


# `reads`: it only prints, so that `| head` may stop it
register_command(
    Command("questions", count_questions, DATA, "How many questions a CSV file has.", reads=True)
)
