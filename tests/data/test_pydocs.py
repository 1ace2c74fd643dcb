import hashlib
import textwrap

import pyarrow.parquet as pq
import pytest

from tandem.config.datasets import HashSplits
from tandem.data.sources.docstrings import list_docstrings, split_docstring, strip_markup
from tandem.data.sources.pydocs import (
    find_modules,
    hash_query,
    is_query,
    make_heading,
    make_pair,
    mask_name,
)
from tandem.errors import UserError

NUMPY_STYLE = """
frobnicate(x, axis=None) -> array

Sum the *elements* of ``x`` over an axis. Empty input gives zero.

Parameters
----------
x : array_like
    Elements to sum, see :func:`~pkg.other <target>`.

Examples
--------
>>> frobnicate([1, 2])
3

Notes
-----
Rounding follows `IEEE 754`_ [1]_.

References
----------
.. [1] Somebody, "Sums".
"""

GOOGLE_STYLE = """Open a file and return
its lines.

More about [files](https://example.org/files).

Args:
    path: Where the file is.

Example:
    lines = read("a")

Returns:
    All lines.
"""


def test_a_numpy_docstring_loses_signature_heads_examples_and_references():
    summary, body = split_docstring(textwrap.dedent(NUMPY_STYLE))
    assert summary == "Sum the *elements* of x over an axis"
    assert body == (
        "Empty input gives zero. x : array_like Elements to sum, see pkg.other. Rounding follows IEEE 754 ."
    )


def test_a_google_docstring_keeps_arguments_and_results():
    assert split_docstring(GOOGLE_STYLE) == (
        "Open a file and return its lines",
        "More about files. path: Where the file is. All lines.",
    )


@pytest.mark.parametrize(
    "docstring", ["", "   \n\n", "f(x)", "Parameters\n----------\nx : int", ">>> f(1)\n1"]
)
def test_a_docstring_without_prose_has_no_summary(docstring):
    assert split_docstring(docstring) is None


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (":class:`~a.b.C` and :py:meth:`run <x.run>`", "a.b.C and run"),
        ("``code`` and `name`_", "code and name"),
        ("**bold** [text](http://a.b/c) http://d.e", "bold text"),
        ("%(doc)s of {params} [12]_ x", "of x"),
        (".. note:: be\n   careful", "be careful"),
    ],
)
def test_markup_becomes_plain(markup, text):
    assert strip_markup(markup) == text


@pytest.mark.parametrize(
    ("summary", "good"),
    [
        ("Return the sum", True),
        ("Return it", False),
        ("word " * 30, True),
        ("word " * 31, False),
        ("axis (int): the axis to use", False),
        ("name: the name of it", False),
        ("Deprecated since version two", False),
        ("See numpy.sum for details", False),
        ("Überall ist das so", False),
    ],
)
def test_only_sentences_are_queries(summary, good):
    assert is_query(summary) is good


def test_the_name_is_masked_as_a_word_only():
    assert mask_name("call resize or obj.resize(), not resized or pre_resize", "resize") == (
        "call   or obj. (), not resized or pre_ "
    )
    assert mask_name("at x", "x") == "at x"


def test_a_pair_needs_a_passage_that_says_something():
    words = "these twelve words say enough about what it does for you all"
    text = f"Return the best value. Return the best value {words} best_value."
    assert make_pair("best_value", text, None) == ("Return the best value", words + " .")
    assert make_pair("best_value", text, 3) == ("Return the best value", "these twelve words")
    assert (
        make_pair("f", "Return the best value. These are too few words to be a passage.", None)
        is None
    )


SOURCE = '''
def outer():
    """Outer."""
    def inner():
        """Inner."""

class Thing:
    """Thing."""
    async def method(self):
        """Method."""

if True:
    def conditional():
        """Conditional."""

add_newdoc("numpy", "ndarray", ("sort", """sort(axis)

Sort it."""))
torch.add_docstr(torch.abs, """abs(x)
Absolute.""")
add_newdoc("numpy", "none", "no lines")
print("""not
a doc""")
'''


def test_docstrings_of_everything_that_can_be_called():
    by_name = dict(list_docstrings(SOURCE))
    assert by_name == {
        "outer": "Outer.",
        "Thing": "Thing.",
        "method": "Method.",
        "conditional": "Conditional.",
        "sort": "sort(axis)\n\nSort it.",
        "abs": "abs(x)\nAbsolute.",
    }
    assert list_docstrings("def broken(:") == []


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package of several modules; two functions share a body, two a summary."""
    words = "it takes a number of words to make a passage that answers a question well"
    root = tmp_path / "site" / "tinypkg"
    (root / "tests").mkdir(parents=True)
    (root / "sub").mkdir()

    def write(name, *functions):
        (root / name).write_text(
            "".join(f'def {f}():\n    """{doc}"""\n\n' for f, doc in functions)
        )

    write("__init__.py", ("alpha", f"Make the first thing.\n\nalpha {words}."))
    write(
        "b.py",
        ("beta", f"Make the second thing.\n\n{words}."),
        ("gamma", f"Make the first thing.\n\nElse {words}."),
    )
    write(
        "sub/__init__.py",
        *((f"f{i}", f"Count up to number {i}.\n\nNumber {i}, {words}.") for i in range(60)),
    )
    write("sub/test_x.py", ("hidden", f"Never to be seen anywhere.\n\nHidden {words}."))
    write("tests/x.py", ("hidden", f"Never to be seen anywhere.\n\nHidden {words}."))
    monkeypatch.syspath_prepend(str(root.parent))
    return root


def test_modules_are_found_without_tests_and_sorted(package):
    assert [name for name, _ in find_modules(["tinypkg"])] == [
        "tinypkg",
        "tinypkg.b",
        "tinypkg.sub",
    ]


def test_modules_are_not_imported(package):
    (package / "bad.py").write_text("raise SystemExit('imported')\n")
    assert "tinypkg.bad" in [name for name, _ in find_modules(["tinypkg", "json"])]
    with pytest.raises(
        UserError, match=r"packages: 'no_such_package' is not installed; install it or leave it out"
    ):
        find_modules(["no_such_package"])


def test_equal_bodies_are_one_passage_and_equal_summaries_one_query(package, make):
    dataset = make("tiny", {"source": "pydocs", "packages": ["tinypkg"]})
    # 60 numbered ones; "the first thing" twice; the bodies of alpha (name masked) and beta are equal
    assert dataset.manifest.facts["passages"] == 62
    assert sum(dataset.manifest.facts["queries"].values()) == 62
    assert dataset.manifest.facts["source"] == {"files": 3, "pairs": 63}
    rows = pq.read_table(dataset.path("qrels.parquet")).to_pylist()
    query = "q" + hashlib.sha1(b"make the first thing").hexdigest()[:10]
    first = {row["doc_id"] for row in rows if row["query_id"] == query}
    normal = "it takes a number of words to make a passage that answers a question well"
    shared, other = (
        hashlib.sha1(text.encode()).hexdigest()[:10] for text in (normal, f"else {normal}")
    )
    assert first == {shared, other}
    assert {
        row["doc_id"]
        for row in rows
        if row["query_id"] == "q" + hashlib.sha1(b"make the second thing").hexdigest()[:10]
    } == {shared}
    for name, column in (("corpus", "doc_id"), ("queries", "query_id")):
        ids = pq.read_table(dataset.path(f"{name}.parquet"))[column].to_pylist()
        assert ids == sorted(ids)


def test_one_and_two_processes_give_the_same_bytes(package, make):
    params = {"source": "pydocs", "packages": ["tinypkg", "click"]}
    first, second = (make(f"w{workers}", params, workers=workers) for workers in (1, 2))
    assert first.manifest.files == second.manifest.files
    assert first.manifest.facts["passages"] > 200


def test_the_order_of_packages_does_not_show(package, make):
    forward, backward = (
        make("".join(p), {"source": "pydocs", "packages": p})
        for p in (["json", "tinypkg"], ["tinypkg", "json"])
    )
    assert forward.manifest.facts["checksum"] == backward.manifest.facts["checksum"]


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("open the file", "test"),  # its sha1 starts with fcfc2455, which is 5 modulo 100
        ("invert a matrix", "train"),  # 6bc9976c: 12
        ("sort an array", "train"),  # fbcb2aaf: 51
    ],
)
def test_splits_follow_the_hash(text, split):
    assert HashSplits().of(hash_query(text)) == split


def test_splits_have_their_shares():
    splits = [HashSplits().of(hash_query(f"query {i}")) for i in range(5000)]
    assert abs(splits.count("test") / 5000 - 0.08) < 0.012
    assert abs(splits.count("dev") / 5000 - 0.04) < 0.01
    wide = HashSplits(dev=("8-24",), test=("0-8", "24-32"))
    assert [wide.of(number) for number in (107, 108, 123, 24, 131, 32, 99)] == [
        "test", "dev", "dev", "test", "test", "train", "train",
    ]  # fmt: skip


def test_headings_are_the_words_of_the_module(package, make):
    assert (
        make_heading("sklearn.linear_model._logisticModel") == "sklearn linear model logistic Model"
    )
    assert make_heading("numpy.linalg.linalg") == "numpy linalg"
    dataset = make("h", {"source": "pydocs", "packages": ["tinypkg"], "heading": "module"})
    titles = pq.read_table(dataset.path("corpus.parquet"))["title"].to_pylist()
    assert set(titles) == {"tinypkg", "tinypkg b", "tinypkg sub"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "packages: None; a list of names of installed packages is needed"),
        ({"packages": ["json"], "heading": "full"}, 'heading is "full"; allowed: none, module'),
        ({"packages": ["json"], "passage_words": 0}, "passage_words is 0; allowed: ≥ 1"),
        (
            {"packages": ["os.path"]},
            "packages: 'os.path' is not installed; install it or leave it out",
        ),
        ({"packages": ["_heapq"]}, "packages: '_heapq' is not written in Python; leave it out"),
    ],
)
def test_wrong_parameters_are_one_line(make, params, message):
    with pytest.raises(UserError) as error:
        make("d", {"source": "pydocs", **params})
    assert str(error.value).startswith(message)
