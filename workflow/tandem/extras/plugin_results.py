"""Check results of a user's plugin that nothing else checks: stages that it plans, searches, and lists of runs."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.errors import UserError, shortened

if TYPE_CHECKING:  # planning, which loads plugins, reads no vectors
    from tandem.data.columns import RankedRows
    from tandem.retrieval.embeddings import Stretches
    from tandem.retrieval.exact import Array
    from tandem.store.artifact import Artifact

_AUTO = "auto"  # a value of `execution.engine`


def wrap_entry(decorator: str, name: str, entry: Any, plans: str = "") -> Any:
    """Return what a plugin registers under a decorator, wrapped in a check of its results where there is one.

    Args:
        plans: for a function that plans one stage, the arguments that it is called with; otherwise empty.
    Raises:
        UserError: it cannot be called with these arguments, or it is not a view although the decorator needs one.
    """
    if plans and callable(entry):
        return _check_stages(decorator, name, entry, plans)
    if decorator == "search_engine":
        return _check_engine(name, entry)
    if decorator == "plans_view":
        return _check_view(name, entry)
    return entry


def locate_function(function: Callable[..., Any]) -> str:
    """Return the file and the name of a function, for a message: `my_ideas.py: make_sgd`."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return f"{Path(code.co_filename).name}: {name}" if code else name


def _check_stages(
    decorator: str, name: str, plan: Callable[..., Any], arguments: str
) -> Callable[..., Any]:
    try:
        inspect.signature(plan).bind(*arguments.split(", "))
    except TypeError:
        own = ", ".join(inspect.signature(plan).parameters)
        raise UserError(
            f"{plan.__name__}: takes ({own}), but functions under @{decorator} are called with ({arguments})"
        ) from None

    @wraps(plan)
    def plan_stage(*values: Any, **options: Any) -> Any:
        """Return the planned stage."""
        from tandem.plan.graph import Stage

        stage = plan(*values, **options)
        if not isinstance(stage, Stage):
            problem = f"returned {shortened(repr(stage))} for {name}"
            raise UserError(
                f"{locate_function(plan)} {problem}; a stage is needed, as ctx.stage makes it"
            )
        return stage

    return plan_stage


def _check_view(name: str, view: Any) -> Any:
    from tandem.plan.plan import ReportPart, View

    if not (isinstance(view, type) and issubclass(view, View)):
        raise UserError(
            f"view {name}: {shortened(repr(view))} is registered; a class is needed that is derived from View "
            "(tandem.plan.plan)"
        )
    make_part = view.report_part

    @wraps(make_part)
    def report_part(self: View) -> Any:
        """Return what the view adds to the report."""
        part = make_part(self)
        if part is not None and not isinstance(part, ReportPart):
            problem = f"returned {shortened(repr(part))}"
            raise UserError(
                f"{locate_function(make_part)} {problem}; a ReportPart (tandem.plan.plan) is needed, or None"
            )
        return part

    view.report_part = report_part  # type: ignore[method-assign]
    return view


def _check_engine(name: str, start: Callable[[], Any]) -> Callable[[], Any]:
    if name == _AUTO:
        raise UserError(f"engine {name}: the word leaves the choice to the machine; rename it")

    @wraps(start)
    def open_engine() -> Any:
        """Return the engine, wrapped so that its searches are checked."""
        from tandem.retrieval.exact import SearchEngine

        engine = start()
        if not isinstance(engine, SearchEngine):
            problem = f"returned {shortened(repr(engine))}"
            raise UserError(
                f"{locate_function(start)} {problem}; a SearchEngine (tandem.retrieval.exact) is needed"
            )

        @wraps(engine.search)
        def search(
            queries: "Array", stretches: "Stretches", depth: int, *limits: int | None
        ) -> "Array":
            """Return the best passages of queries."""
            keys = engine.search(queries, stretches, depth, *limits)
            if error := _find_error(keys, len(queries), depth, stretches):
                raise UserError(f"{locate_function(engine.search)} {error}")
            return keys

        return engine._replace(search=search)

    return open_engine


def _find_error(keys: Any, queries: int, depth: int, stretches: "Stretches") -> str | None:
    """Return what is wrong with an engine's packed pairs; None if they have the form of exact search's."""
    import numpy as np

    from tandem.retrieval.exact import unpack_keys

    needed = (
        f"an array of uint64 of shape ({queries}, {depth}) is needed, of packed pairs (pack_keys)"
    )
    if not isinstance(keys, np.ndarray):
        return f"returned {shortened(repr(keys))}; {needed}"
    if keys.dtype != np.uint64 or keys.shape != (queries, depth):
        return f"returned an array of {keys.dtype} of shape {keys.shape}; {needed}"
    fewest = int(np.count_nonzero(keys, axis=1).min(initial=depth))
    if fewest < min(depth, stretches.rows):
        return (
            f"found {fewest} passages of a query; exact search finds {min(depth, stretches.rows)}"
        )
    ranks = unpack_keys(keys)[1]
    places = np.where(keys > 0, ranks, -1 - np.arange(depth))  # missing pairs differ
    if places.max(initial=0) >= len(stretches.ranks):
        return f"found a passage of rank {places.max()}, but there are {len(stretches.ranks)}"
    if (np.diff(np.sort(places, axis=1), axis=1) == 0).any():
        return "found a passage twice for one query"
    return None


def check_listed_rows(
    key: str, lists: "Iterable[RankedRows]", dataset: "Artifact"
) -> "Iterator[RankedRows]":
    """Yield the lists of a run written by a plugin's stage.

    Raises:
        UserError: a query occurs twice, or its passages are not different rows of the corpus with a score each.
    """
    import numpy as np
    import pyarrow.parquet as pq

    from tandem.data.collection import CORPUS

    passages = pq.read_metadata(dataset.path(CORPUS)).num_rows
    done: set[int] = set()
    for query, rows, scores in lists:
        values, own = np.asarray(rows), np.asarray(scores)
        where = f"{key}: the list of the query in row {query}"
        if query in done:
            raise UserError(f"{where} comes twice; give each query once")
        done.add(query)
        if values.shape != own.shape or values.ndim != 1:
            problem = f"has rows of shape {values.shape} and scores of shape {own.shape}"
            raise UserError(f"{where} {problem}; each passage needs one score")
        if np.isnan(own).any():
            raise UserError(f"{where} has a score that is not a number")
        is_row = np.issubdtype(values.dtype, np.integer) or not values.size
        if not is_row or len(np.unique(values)) < len(values):
            raise UserError(f"{where} has a passage twice, or rows that are not whole numbers")
        if values.min(initial=0) < 0 or values.max(initial=0) >= passages:
            raise UserError(f"{where} has passages outside the corpus: rows 0 to {passages - 1:,}")
        yield query, rows, scores
