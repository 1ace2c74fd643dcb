"""Equal vectors stand in a graph once, and a search finds all of them, in the order of exact search."""

import json

import faiss
import numpy as np
import pytest
from clustered import write_embeddings

from tandem.contrib.indexes import ann, index
from tandem.contrib.indexes.ann import OpenedIndex
from tandem.contrib.indexes.copies import Copies, digest_rows, find_copies
from tandem.contrib.indexes.vector_tradeoffs import measure
from tandem.extras.measuring import list_shares_by_score
from tandem.retrieval import retrieve
from tandem.retrieval.exact import BestPassages, pack_keys
from tandem.retrieval.faiss_search import open_threads
from tandem.store.artifact import open_artifact
from tandem.store.job import run_shard

ROWS, QUESTIONS, DIM = 3000, 20, 32
GRAPH = {"type": "hnsw", "m": 32, "ef_construction": 200, "part": 1 << 22}
QUICK = GRAPH | {"m": 4, "ef_construction": 20}


def test_the_first_of_equal_rows_stands_for_the_others_by_hand():
    codes = np.array([[1, 2], [3, 4], [1, 2], [5, 6], [3, 4], [1, 2]], np.uint8)
    assert digest_rows(codes).shape == (6, 2)
    pairs = find_copies([digest_rows(codes[:2]), digest_rows(codes[2:])], 10)
    assert pairs.tolist() == [[12, 10], [14, 11], [15, 10]]
    assert find_copies([], 0).shape == (0, 2)


def test_rows_are_counted_beyond_32_bits():
    twice = digest_rows(np.array([[1], [2], [1]], np.uint8))
    most = 1 << 32
    assert find_copies([twice], most - 2).tolist() == [[most, most - 2]]
    assert find_copies([twice], most - 3).dtype == np.uint32


def test_nodes_and_rows_by_hand():
    copies = Copies(np.array([[2, 0], [4, 1], [5, 0]]))
    # the nodes are the rows 0, 1, 3, 6
    assert copies.find_rows(np.array([0, 1, 2, 3, -1])).tolist() == [0, 1, 3, 6, -1]
    assert copies.find_nodes(np.arange(7)).tolist() == [0, 1, 0, 2, 1, 0, 3]


@pytest.mark.parametrize(
    ("ranks", "first", "second"),
    [
        (None, [3, 0, 2, 5, 1], [6, 1, 4, -1, -1]),
        # 5, 2, 0 and 4, 1 by their ranks
        ([9, 3, 1, 5, 2, 0, 4], [3, 5, 2, 0, 4], [6, 4, 1, -1, -1]),
    ],
)
def test_copies_stand_beside_their_row_by_hand(ranks, first, second):
    copies = Copies(np.array([[2, 0], [4, 1], [5, 0]]), None if ranks is None else np.array(ranks))
    rows = np.array([[3, 0, 1, 6, -1], [6, 1, -1, -1, -1]])
    scores = np.array([[9, 8, 7, 6, 0], [5, 4, 0, 0, 0]], np.float32)
    scored, expanded = copies.expand(scores, rows)
    assert expanded.tolist() == [first, second]
    assert scored[0].tolist() == [9, 8, 8, 8, 7]
    assert scored[1, :3].tolist() == [5, 4, 4]


def vectors(rows, seed):
    points = np.random.default_rng(seed).standard_normal((rows, DIM))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)


def copied(copies):
    """Vectors of which some are equal to one another."""
    points = vectors(ROWS, 1)
    points[np.random.default_rng(5).choice(ROWS, copies, replace=False)] = points[0]
    return points


@pytest.fixture(scope="module")
def upstream(tmp_path_factory, make_dataset):
    """A corpus whose ids stand in another order than its rows."""
    folder = tmp_path_factory.mktemp("copies")
    documents = [(f"{row * 7919 % ROWS:04d}", "", "text") for row in range(ROWS)]
    return {"dataset": make_dataset(folder / "dataset/made-0000000001", documents, QUESTIONS)} | {
        kind: make_dataset(folder / kind / "made-0000000002", documents[:1])
        for kind in ("model", "tokens")
    }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, upstream):
    """`inputs(points)`: what a search reads."""

    def make(points):
        folder = tmp_path_factory.mktemp("vectors")
        sides = {"passages": points, "queries": vectors(QUESTIONS, 2)}
        return {"dataset": upstream["dataset"]} | {
            side: write_embeddings(folder / f"{side}-0000000003", own, side, upstream)
            for side, own in sides.items()
        }

    return make


@pytest.fixture(scope="module")
def search(tmp_path_factory, make_job):
    """`search(inputs, index params, **ann params)`: the artifacts of an index and of a run through it."""

    def make(inputs, params, **more):
        folder = tmp_path_factory.mktemp("graph")
        index.run(
            make_job("index", folder / "de@x-0000000004", params, {"passages": inputs["passages"]})
        )
        built = open_artifact(folder / "de@x-0000000004")
        how = {"depth": 1000, "split": "test", "ef_search": 128, "recall_queries": QUESTIONS} | more
        ann.run(make_job("ann", folder / "de@x.test-0000000005", how, inputs | {"index": built}))
        return built, open_artifact(folder / "de@x.test-0000000005")

    return make


def lines(artifact):
    return [line.rsplit(" ", 1)[0] for line in artifact.path("run.trec").read_text().splitlines()]


@pytest.mark.parametrize("copies", [300, 2000])
def test_copies_take_nothing_from_a_graph(inputs, search, copies):
    points = copied(copies)
    plain = faiss.IndexHNSWFlat(DIM, 32, faiss.METRIC_INNER_PRODUCT)
    plain.hnsw.efConstruction, plain.hnsw.efSearch = 200, 128
    plain.add(points.astype(np.float32))
    # FAISS alone comes to an end
    assert (plain.search(vectors(QUESTIONS, 2).astype(np.float32), 2000)[1] < 0).any()
    built, run = search(inputs(points), GRAPH)
    assert built.manifest.facts["copies"] == ROWS - len(np.unique(points, axis=0))
    assert run.manifest.facts["lines"] == QUESTIONS * 1000
    assert min(run.manifest.facts["recall"].values()) > 0.99
    assert "warnings" not in run.manifest.facts


@pytest.mark.parametrize("rescore", [True, False])
def test_a_list_of_copies_is_cut_by_document_id(tmp_path, make_job, inputs, search, rescore):
    """All passages are copies of five vectors: a graph of so few nodes is searched whole, and exact search decides."""
    read = inputs(np.repeat(vectors(5, 3), ROWS // 5, axis=0))
    built, run = search(read, GRAPH, depth=700, rescore=rescore)
    assert json.loads(built.path("meta.json").read_text())["rows"] == ROWS
    retrieve.run(
        make_job("retrieve", tmp_path / "de.test-0000000006", {"depth": 700, "split": "test"}, read)
    )
    ours, exact = (
        [line.split()[:4] for line in lines(artifact)]
        for artifact in (run, open_artifact(tmp_path / "de.test-0000000006"))
    )
    assert ours == exact


def test_vectors_of_equal_codes_are_one_node_and_have_their_own_scores(inputs, search):
    points = copied(0)
    points[:600] = points[0]
    points[:600, 0] += np.linspace(0, 1e-3, 600, dtype=np.float16)  # far less than a step of 8 bits
    built, run = search(
        inputs(points), GRAPH | {"type": "hnsw_sq", "sq": "8bit", "train_sample": None, "seed": 1}
    )
    assert built.manifest.facts["copies"] > 500
    assert run.manifest.facts["recall"]["10"] > 0.95
    assert run.manifest.facts["lines"] == QUESTIONS * 1000


def test_signed_zeros_are_equal(inputs, search):
    points = vectors(ROWS, 1)
    points[:, 3] = 0.0
    points[1] = points[0]
    points[1, 3] = -0.0
    assert search(inputs(points), QUICK, depth=10)[0].manifest.facts["copies"] == 1


def test_parts_shards_threads_and_kills_change_no_byte(
    tmp_path, make_job, command, monkeypatch, inputs
):
    passages = inputs(copied(900))["passages"]
    params = QUICK | {"part": 700}
    outs = {}
    for workers in (1, 3):
        outs[workers] = tmp_path / f"{workers}/de@x-0000000004"
        index.run(
            make_job("index", outs[workers], params, {"passages": passages}, {"workers": workers})
        )
    shared = make_job("index", tmp_path / "shards/de@x-0000000004", params, {"passages": passages})
    run_shard(
        "index-train",
        [*command(shared, "shards/trained.json"), "--run.shard", "0", "--run.shards", "1"],
    )
    for shard in (1, 0):
        words = command(shared, f"shards/{shard}-of-2.json")
        run_shard("index-shard", [*words, "--run.shard", str(shard), "--run.shards", "2"])
    index.run(shared)
    killed = make_job("index", tmp_path / "killed/de@x-0000000004", params, {"passages": passages})
    names, save = [], index.Build.save

    def fragile(build, name, built):
        names.append(name)
        if len(names) == 4:
            raise KeyboardInterrupt
        save(build, name, built)

    monkeypatch.setattr(index.Build, "save", fragile)
    with pytest.raises(KeyboardInterrupt):
        index.run(killed)
    # what was being filled is counted anew
    (killed.out / "work/copies-00001.npy").write_bytes(b"torn")
    index.run(killed)
    sums = [
        open_artifact(out).manifest.checksums for out in (*outs.values(), shared.out, killed.out)
    ]
    assert sums[0]["copies.npy"]
    assert sums[1:] == sums[:1] * 3


def test_every_part_gives_its_own_copies(tmp_path, make_job, inputs):
    points = copied(900)
    passages = inputs(points)["passages"]
    job = make_job(
        "index", tmp_path / "de@x-0000000004", GRAPH | {"part": 700}, {"passages": passages}
    )
    index.run(job)
    with open_threads(1) as threads:
        opened = OpenedIndex(open_artifact(job.out), threads)
        opened.tune(None, 500)
        scores, rows = opened.search(points[:1].astype(np.float32), 900)
        assert np.array_equal(
            np.sort(rows[0]), np.flatnonzero((points == points[0]).all(axis=1))[:900]
        )
        assert (scores == scores[0, 0]).all()
        every = np.arange(ROWS)[::-1].copy()
        assert np.array_equal(opened.decode(every), points[every].astype(np.float32))


def test_of_equally_good_passages_any_counts_by_hand():
    ours, exact = BestPassages(2, 3), BestPassages(2, 3)
    exact.add(
        slice(0, 2),
        pack_keys(np.array([[9.0, 7, 7], [5, 4, 3]], np.float32), np.array([[0, 1, 2], [0, 1, 2]])),
    )
    ours.add(
        slice(0, 2),
        pack_keys(np.array([[9.0, 7, 7], [5, 3, 2]], np.float32), np.array([[0, 3, 4], [0, 2, 5]])),
    )
    # the first query's are as good; the second lacks the one of 4
    assert list_shares_by_score(ours, exact, 3) == pytest.approx([1, 2 / 3])
    assert list_shares_by_score(ours, exact, 2) == pytest.approx([1, 1 / 2])


def test_without_copies_nothing_is_written_of_them(inputs, search):
    built, _ = search(inputs(vectors(ROWS, 1)), QUICK, depth=10)
    assert set(built.manifest.files) == {"index.faiss", "meta.json"}
    assert "copies" not in built.manifest.facts


def test_a_short_list_and_a_low_recall_are_warned_of(inputs, search):
    lists = {"type": "ivf_flat", "nlist": 30, "train_sample": None, "seed": 1, "part": 9999}
    _, run = search(inputs(vectors(ROWS, 1)), lists, nprobe=3, ef_search=None)
    short, low = run.manifest.facts["warnings"]
    counts = [
        sum(line.startswith(f"q{query} ") for line in lines(run)) for query in range(QUESTIONS)
    ]
    assert (
        short
        == f"20 of 20 queries have fewer than 1,000 passages, the least {min(counts)}; raise nprobe"
    )
    recall = run.manifest.facts["recall"]
    assert f"{recall['1000']:.1%} of the first 1000" in low
    assert recall["10"] < 0.9
    _, run = search(inputs(vectors(ROWS, 1)), lists, nprobe=30, ef_search=None)
    assert "warnings" not in run.manifest.facts


def test_what_re_ranks_a_graph_tells_its_vectors_apart(inputs, search):
    points = copied(300)
    factory = {
        "type": "factory",
        "factory": "HNSW32_SQ4,Refine(Flat)",
        "part": 9999,
        "seed": 1,
        "train_sample": None,
    }
    built, run = search(inputs(points), factory)
    assert built.manifest.facts["copies"] == len(points) - len(np.unique(points, axis=0))
    assert run.manifest.facts["recall"]["10"] > 0.95


class OtherCopies:
    """A search whose two best passages are copies of exact search's, with other ids."""

    def search(self, queries, depth):
        best = BestPassages(len(queries), 2)
        best.add(slice(0, 1), pack_keys(np.array([[7, 7]], np.float32), np.array([[2, 3]])))
        return best


@pytest.mark.parametrize(("rescored", "expected"), [(True, 1), (False, 0)])
def test_copies_count_as_found_in_tradeoffs_where_exact_scores_decide(rescored, expected):
    """As in the recall of a run; with an index's own scores nothing tells copies from others."""
    exact = BestPassages(1, 2)
    exact.add(slice(0, 1), pack_keys(np.array([[7, 7]], np.float32), np.array([[0, 1]])))
    measured = measure(OtherCopies(), np.zeros((1, 4)), exact, (1, 2), 1, rescored)
    assert (measured["recall@1"], measured["recall@2"]) == (expected, expected)
    assert measured["ms_per_query"] > 0
