"""What stands beside saved weights: sentence-transformers' files, and the README's lines on how to load a folder."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from tandem.store.files import write_json

MODULES = {
    "Transformer": ("", "base.modules.transformer.Transformer"),
    "Pooling": ("1_Pooling", "sentence_transformer.modules.pooling.Pooling"),
    "Normalize": ("2_Normalize", "sentence_transformer.modules.normalize.Normalize"),
    "Dense": ("2_Dense", "base.modules.dense.Dense"),
    "Router": ("", "base.modules.router.Router"),
}


def describe_encoder(folder: Path, dimension: int, pooling: str, normalize: bool) -> None:
    """Make an encoder's folder a SentenceTransformer with this pooling, whose similarity is the dot product."""
    _modules(folder, _pooled(normalize))
    _transformer(folder)
    _pooling(folder, dimension, pooling)
    _similarity(folder)


def describe_two_towers(folder: Path, query: str, passage: str, normalize: bool) -> None:
    """Make a folder of two towers one SentenceTransformer: `encode_query` and `encode_document` take one each.

    The towers' own folders, which `describe_encoder` has described, are its parts: no weight is stored twice.
    """
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for route, tower in (("query", query), ("document", passage)):
        parts = {str(Path(tower) / MODULES[name][0]): _class(name) for name in _pooled(normalize)}
        types |= parts
        structure[route] = list(parts)
    parameters = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    _modules(folder, ["Router"])
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    _similarity(folder)


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Make an encoder's folder with a head in 2_Dense/ a CrossEncoder; scores are the output's sigmoid."""
    _modules(folder, ["Transformer", "Pooling", "Dense"])
    _transformer(folder)
    _pooling(folder, dimension, pooling)
    size = {"in_features": dimension, "out_features": 1, "bias": True}
    names = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "2_Dense/config.json", {**size, **activation, **names})
    config = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder", "prompts": {}}
    write_json(folder / "config_sentence_transformers.json", config)


def _pooled(normalize: bool) -> list[str]:
    """The modules from token ids to a vector."""
    return ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]


def _class(name: str) -> str:
    return f"sentence_transformers.{MODULES[name][1]}"


def _modules(folder: Path, names: list[str]) -> None:
    """The modules in the order they are called."""
    modules = [
        {"idx": i, "name": str(i), "path": MODULES[name][0], "type": _class(name)} for i, name in enumerate(names)
    ]
    write_json(folder / "modules.json", modules)


def _transformer(folder: Path) -> None:
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    config = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
    write_json(folder / "sentence_bert_config.json", {**config, "module_output_name": "token_embeddings"})


def _pooling(folder: Path, dimension: int, pooling: str) -> None:
    config = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", config)


def _similarity(folder: Path) -> None:
    """Scores are dot products; a temperature divides them, which changes no ranking."""
    config: dict[str, object] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", {**config, "similarity_fn_name": "dot"})


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
    return {vectors}

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

SCORE_SEGMENTS = """\
```python
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModel.from_pretrained("cross")
inputs = tokenizer(["a query"], ["a passage"], padding=True, return_tensors="pt")
query = tokenizer(["a query"], return_tensors="pt")["input_ids"].shape[1]  # its special tokens included
hidden, head = model(**{k: v for k, v in inputs.items() if k != "token_type_ids"}).last_hidden_state[0], load_file(
    "cross/2_Dense/model.safetensors"
)
cosine = torch.nn.functional.cosine_similarity(hidden[:query].mean(0), hidden[query:].mean(0), dim=0)
scores = cosine * head["linear.weight"][0] + head["linear.bias"]
```"""


@dataclass(frozen=True)
class Lengths:
    """The longest inputs of a training, in tokens: query, passage, and special tokens around one text and a pair."""

    query: int
    passage: int
    single: int
    pair: int


def front_matter(part: str, base: str | None, licence: str | None) -> str:
    """The YAML block that the hub reads: `part` is `dual` or `cross`; what is unknown is left out."""
    fields: dict[str, object] = {"library_name": "sentence-transformers", "pipeline_tag": TASKS[part]}
    fields |= {"base_model": base} if base else {}
    fields |= {"license": licence.lower()} if licence else {}
    fields["tags"] = ["sentence-transformers", "tandem", "passage-retrieval", f"{part}-encoder"]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---\n"


@dataclass(frozen=True)
class DualShape:
    """What `dual.json` says: how a saved dual encoder makes vectors and scores."""

    shared: bool
    pooling: str
    normalize: bool
    temperature: float
    dimension: int


def dual_usage(shape: DualShape, lengths: Lengths) -> str:
    """How to load the dual encoder of a `dual.json`; each block ends with `scores`, shape (queries, passages)."""
    whole, query, passage = ("dual/shared",) * 3 if shape.shared else ("dual", "dual/query", "dual/passage")
    divided = f" / {shape.temperature}"
    query_tokens, passage_tokens = lengths.query + lengths.single, lengths.passage + lengths.single
    ours = f"""\
```python
from pathlib import Path
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

model, tokenizer = DualEncoder.load(Path("dual")).eval(), load_tokenizer(Path("{passage}"))
template = Template.of(tokenizer)
query, text = tokenizer(["a query", "a passage"], add_special_tokens=False)["input_ids"]
vectors = [model.encode(*side, template, "fp32") for side in (("query", [query]), ("passage", [text]))]
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
        pool=POOL[shape.pooling],
        vectors="vectors / vectors.norm(dim=1, keepdim=True)" if shape.normalize else "vectors",
        query=query,
        passage=passage,
        query_tokens=query_tokens,
        passage_tokens=passage_tokens,
        temperature=shape.temperature,
    )
    return "\n\n".join([ours, theirs, plain])


def cross_usage(pooling: str, lengths: Lengths) -> str:
    """How to load the cross-encoder of a `cross.json`; each block ends with `scores`, shape (pairs,)."""
    ours = """\
```python
from pathlib import Path
from tandem.models.cross import CrossEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

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
    if pooling == "segments":
        return "\n\n".join([ours, SCORE_SEGMENTS])
    return "\n\n".join([ours, theirs, SCORE.format(pool=POOL[pooling])])


def folders(part: Path) -> list[Path]:
    """The folders of a saved part that sentence-transformers loads, else the part: each of them gets the card."""
    return sorted(path.parent for path in part.rglob("modules.json")) or [part]
