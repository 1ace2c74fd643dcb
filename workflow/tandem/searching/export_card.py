"""README.md of an exported folder: what it holds, and the lines of plain FAISS and transformers that search it."""

from dataclasses import dataclass
from typing import Any

from tandem.models.saving import POOL

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
    return {made}.half().float()  # rounded as the stages do

def search(query, k=10):
    scores, rows = index.search(encode(query).numpy(), k)
    return [(ids[row], float(score) / {temperature}) for score, row in zip(scores[0], rows[0]) if row >= 0]

for doc, score in search({query!r}):
    print(doc, score)
```"""
THEIRS = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{whole}")
model.max_seq_length = {tokens}  # of a query; passages were cut to {passage_tokens}
scores, rows = index.search(model.encode_query([{query!r}]), 10)
```"""


@dataclass(frozen=True)
class Exported:
    """What a folder holds.

    Attributes:
        dual: the model's `dual.json`: shared, pooling, normalize, temperature, dimension.
        tokens: longest query and passage, special tokens included.
        passages: how many there are.
        precision: in which their vectors were computed.
        dtype: how they were kept, `fp16` or `int8`.
        indexes: files of the index, each with the passages that follow those of the one before.
        factory: FAISS's name of the index.
        tuned: FAISS's search parameters, by name.
        texts: whether the passages' texts are there.
        query: an example.
        lineage: what each thing was made from.
    """

    dual: dict[str, Any]
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


def card(name: str, told: Exported) -> str:
    """The page."""
    whole, tower = ("dual/shared",) * 2 if told.dual["shared"] else ("dual", "dual/query")
    words = {"query": told.query, "tokens": told.tokens[0], "passage_tokens": told.tokens[1], "whole": whole}
    searching = SEARCH.format(
        **words,
        tower=tower,
        opened="\n".join(opened(told)),
        pool=POOL[told.dual["pooling"]],
        made="(vectors / vectors.norm(dim=1, keepdim=True))" if told.dual["normalize"] else "vectors",
        temperature=told.dual["temperature"],
    )
    rows = "\n".join(f"| {what} | {key} |" for what, key in told.lineage.items())
    sections = [
        f"# {name}: a dual encoder and its index of {told.passages:,} passages",
        "\n".join(_contents(told)),
        f"## Search\n\nIn this folder, with `pip install faiss-cpu torch transformers`:\n\n{searching}",
        f"Or the same vector by sentence-transformers:\n\n{THEIRS.format(**words)}",
        f"## What the numbers are\n\n{' '.join(_numbers(told))}",
        f"## Made from\n\n| what | artifact |\n|---|---|\n{rows}",
    ]
    return "\n\n".join(sections) + "\n"


def opened(told: Exported) -> list[str]:
    """The lines that open the index."""
    lines = [f'index = faiss.read_index("{told.indexes[0]}", faiss.IO_FLAG_ONDISK_SAME_DIR)']
    if told.factory == "Flat":
        lines = [f'index = faiss.read_index("{told.indexes[0]}")']
    if len(told.indexes) > 1:
        listed = ", ".join(f'"{name}"' for name in told.indexes)
        lines = [
            f"parts = [faiss.read_index(name) for name in ({listed})]",
            f"index = faiss.IndexShards({told.dual['dimension']}, False, True)  # rows go on from part to part",
            "for part in parts:",
            "    index.add_shard(part)",
        ]
    return [*lines, *(f"faiss.ParameterSpace().set_index_parameter(index, {k!r}, {v})" for k, v in told.tuned.items())]


def _contents(told: Exported) -> list[str]:
    """A line per file."""
    lines = ["- `dual/`: the model, as transformers and sentence-transformers load it; its card is in the same folder"]
    lines += [f"- `{name}`: FAISS, `{told.factory}`, inner product" for name in told.indexes]
    lines.append("- `ids.txt`: the passages' ids, a line each, in the order of the index")
    return [*lines, *(["- `texts.parquet`: doc_id, title, text, in the same order"] if told.texts else [])]


def _numbers(told: Exported) -> list[str]:
    """Pooling, lengths, temperature and precision, in sentences."""
    pooling = {"cls": "the first token's vector", "mean": "the mean of the tokens' vectors"}[told.dual["pooling"]]
    scaled = ", scaled to length 1" if told.dual["normalize"] else ""
    return [
        f"A text's vector is {pooling}{scaled}.",
        f"Queries are cut to {told.tokens[0]} tokens and passages were to {told.tokens[1]}, special tokens included;",
        "a passage is its title, a space and its text.",
        f"A score is the inner product divided by {told.dual['temperature']}, which changes no ranking.",
        f"The passages' vectors were computed in {' and '.join(told.precision)} and kept in {told.dtype};",
        "a query encoded in another precision, as above in fp32, gets scores with other last digits.",
    ]
