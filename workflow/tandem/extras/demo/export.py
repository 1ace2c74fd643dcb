"""The command `export`: a dual encoder and the index of its passages as a folder for plain FAISS and transformers."""

import json
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter

from tandem.cluster.progress import Progress, say
from tandem.data.collection import CORPUS, Collection
from tandem.errors import UserError
from tandem.extras.demo.systems import DUAL, KINDS, part, require_built, resolve
from tandem.extras.operations.configurations import Configuration, split_files
from tandem.models.saving import POOL
from tandem.models.tokens import Tokens
from tandem.plan.graph import Stage
from tandem.retrieval.embeddings import Embeddings
from tandem.stages.base import Json
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import replacing, write_text

FLAT, IDS, TEXTS = "passages.faiss", "ids.txt", "texts.parquet"
TUNED = {"nprobe": "nprobe", "ef_search": "efSearch"}  # an index's parameters, and FAISS's names
# What faiss/impl/index_write.cpp writes of a flat index: its mark, dimension, number of vectors, two unused numbers,
# whether it is trained, the metric, and the number of values that follow.
HEADER = struct.Struct("<4siqqq?iQ")
MARK, UNUSED, INNER_PRODUCT = b"IxFI", 1 << 20, 0
SEARCH = """\
```python
import faiss
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{tower}"), AutoModel.from_pretrained("{tower}").eval()
{opened}
with open("ids.txt", encoding="utf-8") as file:
    ids = file.read().split("\\n")

@torch.inference_mode()
def encode(query):
    inputs = tokenizer(query, truncation=True, max_length={tokens}, return_tensors="pt")
    hidden = model(**inputs).last_hidden_state
    vectors = {pool}
    return {vectors}.half().float()  # rounded as the stages do

def search(query, k=10):
    scores, rows = index.search(encode(query).numpy(), k)
    return [(ids[row], float(score) / {temperature}) for score, row in zip(scores[0], rows[0]) if row >= 0]

for doc, score in search({query!r}):
    print(doc, score)
```"""
SENTENCE_TRANSFORMERS = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{whole}")
model.max_seq_length = {tokens}  # of a query; passages were cut to {passage_tokens}
scores, rows = index.search(model.encode_query([{query!r}]), 10)
```"""


@dataclass(frozen=True)
class Exported:
    """What an exported folder holds.

    Attributes:
        dual: the model's `dual.json`: shared, pooling, normalize, temperature, dimension.
        tokens: longest query and passage, special tokens included.
        precision: in which the passages' vectors were computed; `dtype`: how they were stored.
        indexes: files of the index, each with the passages that follow those of the one before.
        factory: FAISS's name of the index; `tuned`: its search parameters.
        query: an example.
        lineage: what each file was made from.
    """

    dual: Json
    tokens: tuple[int, int]
    passages: int
    precision: list[str]
    dtype: str
    indexes: list[str]
    factory: str
    tuned: dict[str, int]
    texts: bool
    query: str
    lineage: dict[str, str]


def export(
    model: str,
    /,
    *files: str,
    out: Path,
    index: str | None = None,
    texts: Annotated[bool, Parameter(negative="")] = False,
    dataset: str | None = None,
) -> None:
    """Write a dual encoder and the index of its passages as a folder for plain FAISS and transformers.

    Args:
        model: a dual encoder.
        files: FILE.yaml … laid upon config/config.yaml, as Snakemake's `--configfile`.
        out: the folder.
        index: one of `indexes:` instead of all vectors (flat).
        texts: include the passages' texts.
        dataset: instead of the configuration's `dataset`.
    """
    names, paths = split_files([model, *files])
    if len(names) != 1:
        raise UserError(f"{len(names)} words are no YAML files; say one model")
    configuration = Configuration(paths, [f"dataset={dataset}"] if dataset else [])
    system, plan = "@".join([names[0], *([index] if index else [])]), configuration.plan()
    requested = set(plan.stages)
    run = resolve(plan, system)
    if KINDS.get(run.kind) != DUAL:
        raise UserError(f"{system} is not a dual encoder; only vectors can be exported as an index")
    require_built(part(run).needs.values(), requested, system, configuration)
    with fresh_folder(out) as draft:
        fill(draft, system, run, plan.split, texts)
    print(f"{out}: {system}; how to search it is in {out / 'README.md'}")


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that gets its name when it is whole; a `UserError` where something is there already."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder}: exists already and is not an empty folder; name another, or remove it")
    try:
        with replacing(folder.absolute()) as draft:
            draft.mkdir(parents=True)
            yield draft
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be written: {error.strerror}") from None


def fill(folder: Path, system: str, run: Stage, split: str, texts: bool) -> None:
    """Write everything into an empty folder; the first query of `split` is the example."""
    needs = {role: open_artifact(Path(stage.folder)) for role, stage in part(run).needs.items()}
    passages, collection = Embeddings(needs["passages"], "passages"), Collection(needs["dataset"])
    say(f"export {system} · {passages.rows:,} passages")
    shutil.copytree(needs["model"].folder / "dual", folder / "dual")
    with open(folder / IDS, "w", encoding="utf-8", newline="\n") as file:
        for number, batch in enumerate(collection.batches(columns=["doc_id"])):
            file.write(("\n" if number else "") + "\n".join(batch["doc_id"].to_pylist()))
    if texts:
        shutil.copyfile(needs["dataset"].path(CORPUS), folder / TEXTS)
    files, factory = [FLAT], "Flat"
    if "index" in needs:
        files, factory = _copy_index(needs["index"], folder)
    else:
        with Progress(f"export {system}", passages.rows, "passages") as progress:
            write_flat(folder / FLAT, passages, progress)
    special = Tokens.open(needs["tokens"]).template.extra[0]
    query, passage = (needs["tokens"].params[f"{side}_length"] + special for side in ("query", "passage"))
    exported = Exported(
        dual=json.loads((folder / "dual/dual.json").read_text()),
        tokens=(query, passage),
        passages=passages.rows,
        precision=needs["passages"].manifest.facts["precision"],
        dtype=passages.dtype,
        indexes=files,
        factory=factory,
        tuned={TUNED[key]: value for key, value in run.values.items() if key in TUNED and value},
        texts=texts,
        query=next(iter(collection.queries(split).values())),
        lineage={role: artifact.key for role, artifact in needs.items()},
    )
    write_text(folder / "README.md", card(system, exported))


def write_flat(path: Path, passages: Embeddings, progress: Progress) -> None:
    """Write what `faiss.write_index` writes of an `IndexFlatIP` of the passages in float32, block by block."""
    rows, dimension = passages.rows, passages.dimension
    with open(path, "wb") as file:
        file.write(HEADER.pack(MARK, dimension, rows, UNUSED, UNUSED, True, INNER_PRODUCT, rows * dimension))
        for _, vectors in passages.blocks():
            file.write(np.ascontiguousarray(vectors, "<f4").data)
            progress.add(len(vectors))


def _copy_index(index: Artifact, folder: Path) -> tuple[list[str], str]:
    """Copy an index's files; their names in the order of their passages, and FAISS's name of the index."""
    meta = json.loads(index.path("meta.json").read_text())
    for name in index.manifest.files:
        if name != "meta.json":
            shutil.copyfile(index.path(name), folder / name)
    return [part["file"] for part in meta["indexes"]], meta["factory"]


def card(name: str, exported: Exported) -> str:
    """README.md: what the folder holds, and the lines of plain FAISS and transformers that search it."""
    whole, tower = ("dual/shared",) * 2 if exported.dual["shared"] else ("dual", "dual/query")
    query_tokens, passage_tokens = exported.tokens
    code = SEARCH.format(
        query=exported.query,
        tokens=query_tokens,
        tower=tower,
        opened="\n".join(opening_lines(exported)),
        pool=POOL[exported.dual["pooling"]],
        vectors="(vectors / vectors.norm(dim=1, keepdim=True))" if exported.dual["normalize"] else "vectors",
        temperature=exported.dual["temperature"],
    )
    same = SENTENCE_TRANSFORMERS.format(
        query=exported.query, tokens=query_tokens, passage_tokens=passage_tokens, whole=whole
    )
    rows = "\n".join(f"| {what} | {key} |" for what, key in exported.lineage.items())
    sections = [
        f"# {name}: a dual encoder and its index of {exported.passages:,} passages",
        "\n".join(_contents(exported)),
        f"## Search\n\nIn this folder, with `pip install faiss-cpu torch transformers`:\n\n{code}",
        f"Or the same vector by sentence-transformers:\n\n{same}",
        f"## What the numbers are\n\n{' '.join(_numbers(exported))}",
        f"## Made from\n\n| what | artifact |\n|---|---|\n{rows}",
    ]
    return "\n\n".join(sections) + "\n"


def opening_lines(exported: Exported) -> list[str]:
    """The lines that open the index."""
    lines = [f'index = faiss.read_index("{exported.indexes[0]}", faiss.IO_FLAG_ONDISK_SAME_DIR)']
    if exported.factory == "Flat":
        lines = [f'index = faiss.read_index("{exported.indexes[0]}")']
    if len(exported.indexes) > 1:
        names = ", ".join(f'"{name}"' for name in exported.indexes)
        lines = [
            f"parts = [faiss.read_index(name) for name in ({names})]",
            f"index = faiss.IndexShards({exported.dual['dimension']}, False, True)  # rows go on from part to part",
            "for part in parts:",
            "    index.add_shard(part)",
        ]
    parameters = exported.tuned.items()
    return [*lines, *(f"faiss.ParameterSpace().set_index_parameter(index, {k!r}, {v})" for k, v in parameters)]


def _contents(exported: Exported) -> list[str]:
    lines = ["- `dual/`: the model, as transformers and sentence-transformers load it; its card is in the same folder"]
    lines += [f"- `{name}`: FAISS, `{exported.factory}`, inner product" for name in exported.indexes]
    lines.append("- `ids.txt`: the passages' ids, a line each, in the order of the index")
    return [*lines, *(["- `texts.parquet`: doc_id, title, text, in the same order"] if exported.texts else [])]


def _numbers(exported: Exported) -> list[str]:
    pooling = {"cls": "the first token's vector", "mean": "the mean of the tokens' vectors"}[exported.dual["pooling"]]
    scaled = ", scaled to length 1" if exported.dual["normalize"] else ""
    return [
        f"A text's vector is {pooling}{scaled}.",
        f"Queries are cut to {exported.tokens[0]} tokens and passages were to {exported.tokens[1]},",
        "special tokens included;",
        "a passage is its title, a space and its text.",
        f"A score is the inner product divided by {exported.dual['temperature']}, which changes no ranking.",
        f"The passages' vectors were computed in {' and '.join(exported.precision)} and stored in {exported.dtype};",
        "a query encoded in another precision, as above in fp32, gets scores with other last digits.",
    ]
