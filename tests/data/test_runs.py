import numpy as np
import pytest

from tandem.data.runs import iter_run, write_run
from tandem.errors import UserError


def test_ties_are_broken_by_document_id_after_rounding_to_float32(tmp_path):
    path = tmp_path / "run.trec"
    # 1 and 1 + 1e-9 are the same float32; "d10" sorts before "d9".
    lines = write_run(path, [("q", ["d9", "b", "d10"], [1.0, 2.5, 1.0 + 1e-9])], "tag")
    assert lines == 3
    # … and the second of a tie is written as the next lower float32, 1 - 2**-24
    assert path.read_text() == "q Q0 b 1 2.5 tag\nq Q0 d10 2 1 tag\nq Q0 d9 3 0.99999994 tag\n"


def test_written_scores_fall_strictly_and_as_little_as_they_can(tmp_path):
    ranked = [("a", 1.0), ("b", 1.0), ("c", float(np.float32(1) - np.float32(2**-24))), ("d", 0.0), ("e", 0.0)]
    write_run(tmp_path / "run.trec", [("q", *zip(*ranked, strict=True))], "tag")
    [(_, docs, scores)] = iter_run(tmp_path / "run.trec")
    assert docs == ["a", "b", "c", "d", "e"]
    assert scores.tolist() == [1.0, 1 - 2**-24, 1 - 2**-23, 0.0, -(2.0**-149)]


def test_a_run_survives_the_round_trip_bit_for_bit(tmp_path):
    scores = np.random.default_rng(0).normal(size=500).astype(np.float32) * np.float32(1e-3)
    docs = [f"d{i:03}" for i in range(500)]
    write_run(tmp_path / "a", [("q1", docs, scores), ("q0", docs[:2], [0.1, 0.1])], "t")
    (one, found, read), (other, pair, _) = iter_run(tmp_path / "a")
    assert (one, other, pair) == ("q1", "q0", ["d000", "d001"])
    assert dict(zip(found, read.tolist(), strict=True)) == dict(zip(docs, scores.tolist(), strict=True))
    assert read.dtype == np.float32
    write_run(tmp_path / "b", iter_run(tmp_path / "a"), "t")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_score_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a number"):
        write_run(tmp_path / "run", [("q", ["d"], [float("nan")])], "t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "q Q0 d 1 0.5 t\nq Q0 e 2 0.4\n",
            "run:2: not a run line: 'q Q0 e 2 0.4'; it is `query Q0 doc rank score tag`",
        ),
        ("q Q0 d 1 high t\n", "run:1: not a run line: 'q Q0 d 1 high t'; it is `query Q0 doc rank score tag`"),
        ("q Q0 d 1 nan t\n", "run:1: not a run line: 'q Q0 d 1 nan t'; it is `query Q0 doc rank score tag`"),
        (
            "q Q0 d 1 2 t\np Q0 d 1 2 t\nq Q0 e 2 1 t\n",
            "run:3: query q again; the lines of a query must stand together",
        ),
        ("q Q0 d 1 2 t\nq Q0 d 2 1 t\n", "run:1: query q lists document d twice; once is allowed"),
    ],
)
def test_malformed_runs_are_named_by_file_and_line(tmp_path, text, message):
    path = tmp_path / "run"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        list(iter_run(path))
    assert str(error.value) == f"{tmp_path}/{message}"
