"""A collection, and models that start from an encoder, as artifacts on which unchanged stages run."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from texts import Examples, documentation, make

from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

TOWERS = {"shared": True, "pooling": "mean", "normalize": True, "temperature": 0.05}


def prepare(folder: Path, encoder: Path, part: str, lists: int, size: int, made_up: bool) -> None:
    """Make the artifacts `dataset`, `encoder` and `model` in a folder.

    Args:
        folder: the artifacts' folder; `open_prepared` opens them.
        encoder: the folder of the encoder from which the model starts.
        part: of the model: `dual`, `sparse` (a dual encoder of weights of terms) or `cross`.
        lists: number of queries.
        size: passages per query.
        made_up: random words with MS MARCO's lengths; otherwise API documentation.
    """
    import torch

    from tandem.contrib.term_weights.splade import SparseEncoder
    from tandem.models.cross import CrossEncoder
    from tandem.models.dual import DualEncoder
    from tandem.models.hub import load_tokenizer
    from tandem.models.published import run

    tokenizer = load_tokenizer(encoder)
    dataset(folder, make(tokenizer, lists, size) if made_up else documentation(lists, size))
    run(Job("encoder", place(folder, "encoder"), {"source": "folder"}, {}, {"path": str(encoder)}))
    torch.manual_seed(1)
    if part == "cross":
        model = CrossEncoder.start(encoder, "mean")
    elif part == "sparse":
        model = SparseEncoder.start(
            encoder, True, "max", False, 1.0, representation={"type": "sparse"}
        )
    else:
        model = DualEncoder.start(encoder, **TOWERS)
    objective = "cross" if part == "cross" else "dual"
    with writing(
        Job("model", place(folder, "model"), {"objective": objective, "train": {}}, {})
    ) as draft:
        model.save(draft.folder / objective, tokenizer)


def dataset(folder: Path, examples: Examples) -> None:
    """Write the texts as a dataset: the passages of all lists, and the queries, all in the split `test`."""
    passages = [text for group in examples.passages for text in group]
    names, query_ids = (
        [f"{of}{i}" for i in range(count)]
        for of, count in (("p", len(passages)), ("q", len(examples.queries)))
    )
    first = [f"p{i * len(group)}" for i, group in enumerate(examples.passages)]
    test = ["test"] * len(query_ids)
    with writing(Job("dataset", place(folder, "dataset"), {"source": "a benchmark"}, {})) as draft:
        corpus = {"doc_id": names, "title": [""] * len(names), "text": passages}
        pq.write_table(pa.table(corpus), draft.path("corpus.parquet"))
        queries = {"query_id": query_ids, "text": examples.queries, "split": test}
        pq.write_table(pa.table(queries), draft.path("queries.parquet"))
        relevance = pa.array([1] * len(query_ids), pa.int32())
        qrels = {"query_id": query_ids, "doc_id": first, "relevance": relevance, "split": test}
        pq.write_table(pa.table(qrels), draft.path("qrels.parquet"))
        write_json(draft.path("statistics.json"), {})


def place(folder: Path, kind: str) -> Path:
    """Return the folder of the artifact of a kind."""
    return folder / kind / f"{kind}-0000000000"


def open_prepared(folder: Path, *kinds: str) -> dict[str, Artifact]:
    """Return the prepared artifacts, by kind."""
    return {kind: open_artifact(place(folder, kind), verify=False) for kind in kinds}


def stage(folder: Path, kind: str, run: Any, params: dict[str, Any], *inputs: str) -> Artifact:
    """Run a stage again on artifacts of the folder, and return its artifact; `run` is the stage's function."""
    out = place(folder, kind)
    shutil.rmtree(out, ignore_errors=True)
    run(Job(kind, out, params, open_prepared(folder, *inputs)))
    return open_artifact(out, verify=False)


def texts(folder: Path) -> Examples:
    """Return the texts as a peer reads them: queries, each with its passages."""
    tables = {
        name: pq.read_table(place(folder, "dataset") / f"{name}.parquet")["text"]
        for name in ("queries", "corpus")
    }
    queries, passages = (tables[name].to_pylist() for name in ("queries", "corpus"))
    size = len(passages) // len(queries)
    return Examples(queries, [passages[i * size : (i + 1) * size] for i in range(len(queries))])
