"""What packages contribute to `tandem search`: answers about stored vectors of passages, and one list out of several.

Queries come one at a time; vectors are searched in a worker.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from tandem.cluster.threads import count_usable_cores
from tandem.data.columns import Floats
from tandem.data.rows import PassageOrder
from tandem.errors import UserError
from tandem.models.tokens import Tokens, WordTemplate
from tandem.registry import Registry
from tandem.retrieval.exact import Array, BestPassages
from tandem.stages.base import Json, Params
from tandem.store.artifact import Artifact

_ParamsType = TypeVar("_ParamsType", bound=Params)

WORKER_THREADS = count_usable_cores()


def require_pieces(tokens: Artifact, what: str) -> None:
    """Refuse token ids that number the words of their own texts: `what` reads ids of a vocabulary's pieces."""
    if isinstance(Tokens.open(tokens).template, WordTemplate):
        problem = f"{tokens.folder}: holds words by their characters, which {what} does not read"
        raise UserError(f"{problem}; make the queries a dataset, and search it by a table's run")


class PartQuestion(TypedDict, total=False):
    """The fields of a question to a part, by key; which of the optional ones are set depends on the part's role."""

    part: str
    query: str
    vector: list[float] | list[list[float]]
    rows: list[int]
    depth: int


@dataclass(frozen=True)
class Served:
    """A part of the search, in its worker."""

    column: str  # `BM25`, `DE` or `CE`
    params: Json  # the stage's parameters; for a dual encoder also those of its vectors
    inputs: dict[str, Artifact]  # the inputs that it reads, by role
    count: int  # number of parts that share the process

    def params_as(self, model: type[_ParamsType]) -> _ParamsType:
        """Return the part's parameters that are fields of `model`."""
        return model.model_validate(
            {name: self.params[name] for name in model.model_fields.keys() & self.params}
        )


class Searched(ABC):
    """Searches passages by the `vector` that a dual encoder computes for a query."""

    def __init__(self, part: Served) -> None:
        self.order = PassageOrder(part.inputs["dataset"])
        self._open = ExitStack()

    def answer(self, question: PartQuestion) -> Any:
        """With `rows`: their scores for the query's `vector`; with `depth`: (ids, scores) of the best passages."""
        if "rows" in question:
            return self._score(question["vector"], question["rows"]).tolist()
        depth = min(question["depth"], len(self.order.ranks))
        ranks, scores = self._find_best(question["vector"], depth).rank(0)
        return self.order.ids(ranks), scores.tolist()

    @abstractmethod
    def _score(self, vector: Any, rows: list[int]) -> Array: ...

    @abstractmethod
    def _find_best(self, vector: Any, depth: int) -> BestPassages: ...


# By `Kind.vectors` of the stage that stores the passages: the class that searches them.
served_search: Registry[type[Searched]] = Registry(
    "served search", "served_search", "extras.serving", decides=False
)
# By kind of stage that makes one run of several: `(stage, lists, scored) -> (documents, scores)`, best first, from a
# query's lists of documents and scores; `scored` names for each list the rank down to which its scores are meaningful.
served_fusion: Registry[Callable[..., tuple[list[str], Floats]]] = Registry(
    "served fusion", "served_fusion", "extras.serving", decides=False
)
