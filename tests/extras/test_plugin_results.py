"""What a plugin returns is checked: by its engine lists as of exact search, from its views what the report can hold."""

import numpy as np
import pytest
from brute_search import normal, search, store

from tandem.errors import UserError
from tandem.extras.plugin_results import check_listed_rows, wrap_entry
from tandem.plan.plan import ReportPart, View
from tandem.retrieval.exact import SearchEngine
from tandem.retrieval.faiss_search import search_by_faiss

__all__ = ["store"]
NEEDED = r"an array of uint64 of shape \(2, 3\) is needed"


@pytest.fixture
def search_changed(store):
    """`search_changed(change)`: packed pairs of 2 queries' best 3 of 10 passages, as a plugin's engine returns them."""
    embeddings, queries = store(normal(1, 10, 8)), normal(2, 2, 8)

    def search_by_plugin(change):
        def search_and_change(*values):
            return change(search_by_faiss(*values))

        start = wrap_entry("search_engine", "mine", lambda: SearchEngine(search_and_change))
        return search(start().search, embeddings, np.arange(10), queries, 3)

    return search_by_plugin


def test_a_search_as_the_engine_has_it_is_taken(search_changed):
    assert search_changed(lambda keys: keys).shape == (2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda keys: None, f"returned None; {NEEDED}"),
        (lambda keys: keys[:1], rf"returned an array of uint64 of shape \(1, 3\); {NEEDED}"),
        (
            lambda keys: keys.astype(float),
            rf"returned an array of float64 of shape \(2, 3\); {NEEDED}",
        ),
        (
            lambda keys: keys * np.uint64(0),
            "found 0 passages of a query; exact search finds 3",
        ),
        (
            lambda keys: keys - np.uint64(1000),
            r"found a passage of rank 100\d, but there are 10",
        ),
        (lambda keys: keys[:, [0, 0, 1]], "found a passage twice for one query"),
    ],
    ids=["nothing", "a query", "other numbers", "no passage", "another corpus", "twice"],
)
def test_what_is_not_exact_search_is_refused(search_changed, change, message):
    with pytest.raises(UserError, match=rf"test_plugin_results.py: search_and_change {message}"):
        search_changed(change)


def test_what_is_not_an_engine_is_refused():
    with pytest.raises(UserError, match=r"<lambda> returned 'faiss'; a SearchEngine \(tandem"):
        wrap_entry("search_engine", "mine", lambda: "faiss")()


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([(0, [3, 3], [2.0, 1.0])], "has a passage twice"),
        ([(0, [3], [1.0]), (0, [4], [1.0])], "comes twice; give each query once"),
        ([(0, [3, 4], [1.0])], r"has rows of shape \(2,\) and scores of shape \(1,\)"),
        ([(0, [3], [np.nan])], "has a score that is not a number"),
        ([(0, [3.5], [1.0])], "or rows that are not whole numbers"),
        ([(0, [-1], [1.0])], "has passages outside the corpus: rows 0 to 59"),
        ([(0, [60], [1.0])], "has passages outside the corpus: rows 0 to 59"),
    ],
    ids=["passage twice", "query twice", "a score short", "nan", "no row", "below", "above"],
)
def test_lists_that_would_be_scored_wrong_are_refused(dataset, lists, message):
    with pytest.raises(UserError, match=f"mine-01: the list of the query in row 0 .*{message}"):
        list(check_listed_rows("mine-01", lists, dataset))


def test_lists_of_different_passages_are_taken(dataset):
    lists = [(0, [3, 4], [2.0, 1.0]), (1, [], [])]
    assert list(check_listed_rows("mine-01", lists, dataset)) == lists


def test_what_a_view_adds_to_the_report_that_is_no_part_is_named():
    """It was a traceback, where the report's rules asked for it."""

    class Greeting(View):
        def report_part(self):
            return "hello"

    view = wrap_entry("plans_view", "greeting", Greeting)(plan=None)
    with pytest.raises(
        UserError,
        match=r"^test_plugin_results.py: report_part returned 'hello'; a ReportPart .* is needed, or None$",
    ):
        view.report_part()


def test_a_view_that_is_none_is_refused():
    with pytest.raises(
        UserError, match=r"^view greeting: .*print.* is registered; a class is needed"
    ):
        wrap_entry("plans_view", "greeting", print)


def test_views_that_add_something_or_nothing_pass():
    class Greeting(View):
        def report_part(self):
            return ReportPart("hello")

    class Silent(View):
        pass

    assert wrap_entry("plans_view", "greeting", Greeting)(plan=None).report_part() == ("hello", ())
    assert wrap_entry("plans_view", "silent", Silent)(plan=None).report_part() is None
