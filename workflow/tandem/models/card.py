"""What a saved model's README.md says of the folder itself: its front matter, and how to load it from anywhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TASKS = {"dual": "sentence-similarity", "cross": "text-ranking"}
POOL = {
    "cls": "hidden[:, 0]",
    "mean": '(hidden * inputs["attention_mask"][..., None]).sum(1) / inputs["attention_mask"].sum(1, keepdim=True)',
}
ENCODE = """\
```python
from transformers import AutoModel, AutoTokenizer

def encode(folder, texts, tokens):
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt")
    hidden = model(**inputs).last_hidden_state
    vectors = {pool}
    return {made}

queries, passages = encode("{query}", ["a query"], {query_tokens}), encode("{passage}", ["a passage"], {passage_tokens})
scores = queries @ passages.T / {temperature}
```"""
SCORE = """\
```python
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModel.from_pretrained("cross")
inputs = tokenizer(["a query"], ["a passage"], padding=True, return_tensors="pt")
hidden, head = model(**inputs).last_hidden_state, load_file("cross/2_Dense/model.safetensors")
vectors = {pool}
scores = (vectors @ head["linear.weight"].T + head["linear.bias"])[:, 0]
```"""


@dataclass(frozen=True)
class Lengths:
    """The longest inputs of a training, in tokens: query, passage, and special tokens around one text and a pair."""

    query: int
    passage: int
    single: int
    pair: int


def front_matter(part: str, base: str | None, licence: str | None) -> str:
    """The YAML block that the hub reads: `part` is `dual` or `cross`; what is not known is left out."""
    tags = ["sentence-transformers", "tandem", "passage-retrieval"]
    told: dict[str, Any] = {"library_name": "sentence-transformers", "pipeline_tag": TASKS[part]}
    told |= {"base_model": base} if base else {}
    told |= {"license": licence.lower()} if licence else {}
    tags.append("dual-encoder" if part == "dual" else "cross-encoder")
    return f"---\n{yaml.safe_dump({**told, 'tags': tags}, sort_keys=False)}---\n"


def dual_usage(told: dict[str, Any], lengths: Lengths) -> str:
    """How to load the dual encoder of a `dual.json`; each block ends with `scores`, shape (queries, passages)."""
    whole, query, passage = ("dual/shared",) * 3 if told["shared"] else ("dual", "dual/query", "dual/passage")
    divided = f" / {told['temperature']}"
    query_tokens, passage_tokens = lengths.query + lengths.single, lengths.passage + lengths.single
    tandem = f"""\
```python
from pathlib import Path
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.hub import load_tokenizer
from tandem.models.template import Template

model, tokenizer = DualEncoder.load(Path("dual")).eval(), load_tokenizer(Path("{passage}"))
template = Template.of(tokenizer)
query, text = tokenizer(["a query", "a passage"], add_special_tokens=False)["input_ids"]
vectors = [model.encode(*one, template, "fp32") for one in (("query", [query]), ("passage", [text]))]
scores = dot_scores(*vectors, model.temperature)
```"""
    theirs = f"""\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{whole}")
model.max_seq_length = {passage_tokens}  # of a passage; queries were cut to {query_tokens}
queries, passages = model.encode_query(["a query"]), model.encode_document(["a passage"])
scores = model.similarity(queries, passages){divided}
```"""
    plain = ENCODE.format(
        pool=POOL[told["pooling"]],
        made="vectors / vectors.norm(dim=1, keepdim=True)" if told["normalize"] else "vectors",
        query=query,
        passage=passage,
        query_tokens=query_tokens,
        passage_tokens=passage_tokens,
        temperature=told["temperature"],
    )
    return "\n\n".join([tandem, theirs, plain])


def cross_usage(told: dict[str, Any], lengths: Lengths) -> str:
    """How to load the cross-encoder of a `cross.json`; each block ends with `scores`, shape (pairs,)."""
    tandem = """\
```python
from pathlib import Path
from tandem.models.cross import CrossEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.template import Template

model, tokenizer = CrossEncoder.load(Path("cross")).eval(), load_tokenizer(Path("cross"))
query, text = tokenizer(["a query", "a passage"], add_special_tokens=False)["input_ids"]
scores = model([query], [text], Template.of(tokenizer), "fp32")
```"""
    theirs = f"""\
```python
import torch
from sentence_transformers import CrossEncoder

model = CrossEncoder("cross", max_length={lengths.query + lengths.passage + lengths.pair})
scores = model.predict([("a query", "a passage")], activation_fn=torch.nn.Identity())  # else their sigmoid
```"""
    return "\n\n".join([tandem, theirs, SCORE.format(pool=POOL[told["pooling"]])])


def folders(part: Path) -> list[Path]:
    """The folders of a saved part that sentence-transformers loads, each of which gets the card."""
    return sorted(path.parent for path in part.rglob("modules.json"))
