"""A small finished run: every kind of artifact the report reads, scored by the real stage."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_plans import make_table
from toy_world import World

from tandem.cli import run as run_command
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.lineage import input_of

PAPERS = Path(__file__).parents[2] / "config/papers"
NASTY = '</script><script>alert("x")</script><!-- & <b>bold</b> \u2028'
VOCABULARY = "array axis buffer cache column copy dtype file frame graph index join key label merge parse query"


def text(generator, words):
    return " ".join(str(word) for word in generator.choice(VOCABULARY.split(), words))


def dataset(world, queries, passages):
    generator = np.random.default_rng(0)
    docs = [f"p{n:03}" for n in range(passages)]
    texts = [text(generator, 40) for _ in docs]
    texts[0] = NASTY
    positive = {f"q{n:02}": docs[n * 2 % passages] for n in range(queries)}

    def files(draft):
        pq.write_table(
            pa.table({"doc_id": docs, "title": ["title"] * passages, "text": texts}),
            draft.path("corpus.parquet"),
        )
        questions = [f"how to {text(generator, 4)}" for _ in positive]
        questions[0] = f"what is {NASTY}"
        columns = {"query_id": list(positive), "text": questions, "split": ["test"] * queries}
        pq.write_table(pa.table(columns), draft.path("queries.parquet"))
        relevance = pa.array([1] * queries, pa.int32())
        columns = {
            "query_id": list(positive),
            "doc_id": list(positive.values()),
            "relevance": relevance,
        }
        pq.write_table(
            pa.table({**columns, "split": ["test"] * queries}), draft.path("qrels.parquet")
        )
        write_json(
            draft.path("statistics.json"),
            {"passages": {"count": passages}, "splits": {"test": {"queries": queries}}},
        )

    artifact = world.make(
        "dataset", "toy", {"source": "made", "packages": ["numpy", "pandas"]}, files
    )
    return artifact, docs, positive


def ranking(docs, positive, skill, seed):
    """The lists of a run: the positive of a query stands the higher, the more often a coin of `skill` lands well."""
    generator, lists = np.random.default_rng(seed), []
    for query, doc in positive.items():
        others = [
            str(d) for d in generator.choice([d for d in docs if d != doc], 30, replace=False)
        ]
        others.insert(int(generator.geometric(skill)) - 1, doc)
        lists.append((query, others[:30], list(range(30, 0, -1))))
    return lists


def model(steps=120):
    """A training log: falling losses, a rising dev measure."""

    def files(draft):
        step = np.arange(0, steps, 5)
        noise = np.random.default_rng(steps).normal(0, 0.03, len(step))
        names = {
            "loss": 0.4 + np.exp(-step / 40) + noise,
            "kl": 0.1 + np.exp(-step / 40) / 3,
            "lr": 1e-5 * step / steps,
        }
        names |= {
            "dev RR@10 (dual)": 0.5 - np.exp(-step / 50) / 4,
            "tokens_per_second": 4000 + 0 * step,
        }
        columns = {
            "step": np.tile(step, len(names)),
            "name": np.repeat(list(names), len(step)).astype(object),
            "value": np.concatenate([*names.values()]),
        }
        pq.write_table(pa.table(columns), draft.path("log.parquet"))

    return files


def candidates(judged):
    report = {
        "queries": 24,
        "lists": {"undenoised": 24},
        "dropped": {"positive": 20, "duplicate of a positive": 3, "judge above 0.1": 11},
        "percentiles": {
            "positives": {"p5": 0.4, "p50": 0.9} if judged else None,
            "negatives": {"p5": 0.01, "p50": 0.2},
        },
        "histogram": {
            "edges": [0, 0.25, 0.5, 0.75, 1],
            "positives": [1, 2, 5, 16] if judged else [0, 0, 0, 0],
            "negatives": [60, 20, 10, 4],
        },
        "too_few": 2,
    }
    return {"report.json": json.dumps(report)}


def build(root: Path, queries=24, passages=80) -> World:
    """The graph of `make run`, in small."""
    world = World(root)
    data, docs, positive = dataset(world, queries, passages)
    encoder = world.make("encoder", "minilm", {"name": "all-MiniLM-L6-v2"})
    tokens = world.make(
        "tokens",
        "minilm",
        {"query_length": 32, "passage_length": 128},
        dataset=data,
        encoder=encoder,
    )
    lucene = world.make("lucene", "lucene", {"language": "en"}, dataset=data)

    def ranked(kind, name, skill, seed, **inputs):
        return world.make(
            kind,
            name,
            {"depth": 50, "split": "test"},
            ranking(docs, positive, skill, seed),
            dataset=data,
            **inputs,
        )

    def trained(name, lr, **inputs):
        return world.make(
            "model",
            name,
            {"objective": name, "train": {"lr": lr, "seed": 13}},
            model(),
            tokens=tokens,
            **inputs,
        )

    def searched(name, skill, seed, of):
        passages = world.make(
            "embeddings",
            f"{name}.passages",
            {"side": "passages"},
            dataset=data,
            model=of,
            tokens=tokens,
        )
        query_vectors = world.make(
            "embeddings",
            f"{name}.queries",
            {"side": "queries"},
            dataset=data,
            model=of,
            tokens=tokens,
        )
        return ranked("retrieve", name, skill, seed, passages=passages, queries=query_vectors)

    bm25 = ranked("bm25", "bm25", 0.25, 1, lucene=lucene)
    world.score("BM25", "", bm25, data)
    untrained = world.make("untrained", "minilm", {"pooling": "mean"}, encoder=encoder)
    world.score("Encoder, untrained", "", searched("minilm", 0.3, 8, untrained), data)
    lists = world.make(
        "candidates", "bm25", {"depth": 50}, candidates(False), dataset=data, run=bm25
    )
    de_model = trained("de_bm25neg", 2e-5, encoder=encoder, candidates=lists)
    ce_model = trained("ce_bm25neg", 1e-5, encoder=encoder, candidates=lists)
    de = searched("de_bm25neg", 0.5, 2, de_model)
    world.score("DE w/ BM25 Neg", "", de, data)
    world.score(
        "CE w/ BM25 Neg",
        "BM25",
        ranked("rerank", "ce_bm25neg", 0.55, 3, run=bm25, model=ce_model),
        data,
    )
    mined = world.make(
        "candidates",
        "de_bm25neg",
        {"depth": 50},
        candidates(True),
        dataset=data,
        run=de,
        judge_0=ce_model,
    )
    strong = trained("ce_deneg", 1e-5, init=ce_model, candidates=mined)
    world.score(
        "CE w/ DE Neg",
        "BM25",
        ranked("rerank", "bm25.ce_deneg", 0.6, 4, run=bm25, model=strong),
        data,
    )
    world.score(
        "CE w/ DE Neg",
        "DE w/ BM25 Neg",
        ranked("rerank", "de.ce_deneg", 0.65, 5, run=de, model=strong),
        data,
    )
    joint = trained("rocketqav2", 1e-5, retriever=de_model, reranker=strong, candidates=mined)
    retrieved = searched("rocketqav2", 0.6, 6, joint)
    world.score("RocketQAv2 (retriever)", "", retrieved, data)
    world.score(
        "RocketQAv2 (re-ranker)",
        "RocketQAv2 (retriever)",
        ranked("rerank", "rocketqav2", 0.7, 7, run=retrieved, model=joint),
        data,
    )
    return world


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return build(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def report(world, tmp_path_factory) -> Path:
    """The report of the small run, with the table of all systems beside it."""
    folder, rows = tmp_path_factory.mktemp("report"), json.dumps(world.rows)
    make_table(folder, PAPERS / "summary.yaml", rows, folder / "summary.csv")
    out = folder / "report.html"
    assert (
        run_command(
            ["report", "--tables", str(folder / "summary.csv"), "--rows", rows, "--out", str(out)]
        )
        == 0
    )
    return out


@pytest.fixture
def empty_world(tmp_path) -> World:
    return World(tmp_path)


@pytest.fixture
def four_queries(empty_world):
    """Three systems on four queries, each with its relevant passage at rank 2, 1 and 2."""
    world = empty_world

    def files(draft):
        ids = [f"q{n}" for n in range(4)]
        docs = ["a", "b", "c"]
        pq.write_table(
            pa.table({"doc_id": docs, "title": [""] * 3, "text": docs}),
            draft.path("corpus.parquet"),
        )
        pq.write_table(
            pa.table({"query_id": ids, "text": ids, "split": ["test"] * 4}),
            draft.path("queries.parquet"),
        )
        columns = {"query_id": ids, "doc_id": ["a"] * 4, "relevance": pa.array([1] * 4, pa.int32())}
        pq.write_table(pa.table({**columns, "split": ["test"] * 4}), draft.path("qrels.parquet"))
        write_json(draft.path("statistics.json"), {})

    data = world.make("dataset", "toy", {}, files)
    for at, (system, docs) in enumerate(
        {"Old": "bac", "New": "abc", "Same <b>& 1_%": "cab"}.items()
    ):
        lists = [(f"q{n}", list(docs), [3, 2, 1]) for n in range(4)]
        run = world.make("bm25", f"s{at}", {}, lists, dataset=data)
        world.score(system, "", run, data)
    return world


@pytest.fixture
def corrected(empty_world, four_queries):
    """A row of the first system by labels that leave three of its four queries a relevant passage."""
    old = four_queries.rows[0]
    scores = open_artifact(Path(old["scores"]))
    run, data = (input_of(scores, role) for role in ("run", "dataset"))

    def files(draft):
        qrels = pq.read_table(data.path("qrels.parquet"))
        pq.write_table(qrels.slice(1), draft.path("qrels.parquet"))  # q0 has lost its positive

    labels = empty_world.make("relabel", "corrected", {}, files, dataset=data)
    name = "Old, corrected"
    own = empty_world.score(name, "", run, data, ["RR@10"], labels=labels)
    return {**old, "system": name, "scores": str(own.folder)}


@pytest.fixture
def counted(empty_world, four_queries):
    """Rows of two systems by RR@10 and NumRet: Old finds three passages of each query, New the best two of them."""
    old = open_artifact(Path(four_queries.rows[0]["scores"]))
    data = input_of(old, "dataset")
    rows = []
    for system, docs in (("Old", "bac"), ("New", "ab")):
        lists = [(f"q{n}", list(docs), [3, 2, 1][: len(docs)]) for n in range(4)]
        run = empty_world.make("bm25", f"counted_{system}", {}, lists, dataset=data)
        scores = empty_world.score(system, "", run, data, ["RR@10", "NumRet"])
        rows.append({"system": system, "run": run.key, "scores": str(scores.folder), "seed": 0})
    return rows


@pytest.fixture
def artifact_of(world):
    """The score artifact of a system."""
    rows = {(row["system"], row["first_stage"]): row for row in world.rows}

    def find(system, first_stage="") -> Artifact:
        return open_artifact(Path(rows[system, first_stage]["scores"]))

    return find
