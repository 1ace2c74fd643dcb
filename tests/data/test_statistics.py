"""Statistics checked by hand, and the fast functions for a corpus against the plain ones they replace."""

import json
import sys

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tandem.data import reading, tables
from tandem.data.statistics import count_text_words
from tandem.data.validate import TextHashes, require_usable
from tandem.errors import UserError

SPACES = "".join(map(chr, filter(lambda code: chr(code).isspace(), range(sys.maxunicode + 1))))
TEXTS = st.lists(
    st.text(st.sampled_from(SPACES + 'aé中😀"\\\x00\x08\x0e\x1b\x7f\u200b\ufeff'), max_size=12)
)


@settings(deadline=None)
@given(TEXTS)
@example([])
@example(["", " a", "b ", "", "c\u2028d", "e\u3000"])
def test_words_are_those_of_split(texts):
    array = pa.array(["cut off", *texts, "x"], pa.string()).slice(1, len(texts))
    assert count_text_words(array).tolist() == [len(text.split()) for text in texts]


def test_every_white_space_of_python_parts_words():
    assert len(SPACES) == 29
    assert count_text_words(pa.array([f"a{space}b" for space in SPACES])).tolist() == [2] * 29


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text(), st.text(max_size=3), st.text(st.sampled_from('ab"\\\x7f\n ~é中😀')))
    )
)
def test_a_batch_has_the_checksum_of_its_rows(rows):
    by_rows, by_batches = tables.Checksum(), tables.Checksum()
    rows = [tuple(text.encode(errors="replace").decode() for text in row) for row in rows]
    assert list(by_rows.of(rows)) == rows
    for parts in tables.split_columns(rows):
        by_batches.add(tables.make_batch(parts, tables.CORPUS_SCHEMA))
    assert (by_rows.hex(), by_rows.rows) == (by_batches.hex(), by_batches.rows)


def test_a_checksum_is_the_sha256_of_lines_of_json():
    checksum = tables.Checksum()
    checksum.add(tables.make_batch((["d1"], [""], ['a "é"']), tables.CORPUS_SCHEMA))
    # printf '["d1", "", "a \\"\\u00e9\\""]\n' | sha256sum
    assert checksum.hex() == "a5b062be2d028c23ab946226392696ccd6b9bd996846f30ca426c586ff783eea"


def test_what_a_thread_makes_ahead_arrives_in_order_and_so_do_its_errors():
    interval = sys.getswitchinterval()

    def items():
        yield from range(1, 5)
        raise UserError("broken")

    got = []
    with pytest.raises(UserError, match="^broken$"):
        got.extend(tables.prefetch_batches(items()))
    assert got == [1, 2, 3, 4]
    stream = tables.prefetch_batches(items())
    assert [next(stream) for _ in range(4)] == [1, 2, 3, 4]
    stream.close()
    assert sys.getswitchinterval() == interval


def hashes(*texts):
    table = TextHashes()
    table.add(texts)
    return table


def test_hashes_find_what_was_added():
    ids = hashes("a", "b", "c", "b", "a", "b")
    assert ids.has(["c", "x", "a"]).tolist() == [True, False, True]
    assert ids.count_repeats() == 3
    assert list(ids.pairs()) == [(1, 3), (0, 4), (3, 5)]
    assert hashes("p", "q", "r").rows(hashes("r", "x", "p", "r")).tolist() == [2, -1, 0, 2]
    ids.add(["x"])
    assert ids.has(["x", "y"]).tolist() == [True, False]
    for empty in (hashes().has(["a"]), hashes("a").has([])):
        assert not empty.any()
    assert hashes().rows(hashes("a")).tolist() == [-1]
    assert hashes("a").rows(hashes()).tolist() == []
    assert hashes().count_repeats() == len(list(hashes("a").pairs())) == 0


@pytest.mark.parametrize(
    ("ids", "row"), [(["a", "b c", "d"], 11), (["a", ""], 11), ([" a", "b"], 10), (["", "a b"], 10)]
)
def test_the_first_unusable_id_of_a_batch_is_named(ids, row):
    require_usable("document", "place", 10, "a", "b")
    with pytest.raises(UserError, match=f"^place:{row}: document id "):
        require_usable("document", "place", 10, *ids)


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 8, 1000])
def test_lines_do_not_depend_on_how_much_is_read_at_a_time(tmp_path, monkeypatch, piece):
    lines = ["a", "", "bc\u2028d", "é中", "", "long enough to be cut", "last"]
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    monkeypatch.setattr(reading, "BYTES_PER_PIECE", piece)
    assert list(reading.iterate_lines(tmp_path / "f")) == list(enumerate(lines, start=1))
    (tmp_path / "f").write_text("one\n\ntwo\n")
    assert [line for _, line in reading.iterate_lines(tmp_path / "f")] == ["one", "", "two"]
    (tmp_path / "f").write_text("1234\n\n123456789\nx\n")
    assert len(list(reading.iterate_lines(tmp_path / "f", longest=10))) == 4
    got = []
    with pytest.raises(UserError, match=r"f:3: longer than 0 MiB;"):
        got.extend(line for _, line in reading.iterate_lines(tmp_path / "f", longest=9))
    assert got == ["1234", ""]


def test_lengths_by_split_by_hand(beir, make):
    with open(beir / "qrels" / "train.tsv", "a") as file:
        file.write("q1\td2\t2\nq1\tnone\t1\nq1\td0\t0\n")
    statistics = json.loads(
        make("d", {"source": "beir"}, path=str(beir)).path("statistics.json").read_text()
    )
    train = statistics["splits"]["train"]
    assert train["characters"] == {"mean": 6.0, "median": 6.0, "p90": 6.0, "max": 6}  # alpha?
    assert (train["qrels"], train["positives"]["mean"]) == (4, 3.0)
    # positives: "One alpha beta" and "gamma", and one that the corpus lacks
    assert train["relevant"] == {
        "count": 3,
        "words": {"mean": 2.0, "median": 2.0, "p90": 2.8, "max": 3},
        "characters": {"mean": 9.5, "median": 9.5, "p90": 13.1, "max": 14},
    }
    assert statistics["splits"]["test"]["relevant"]["characters"]["max"] == 5
