"""What stands beside saved weights: sentence-transformers' files, and the README's lines on how to load a folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from tandem.store.files import write_json

# Modules of sentence-transformers.
MODULES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Router": "sentence_transformers.base.modules.router.Router",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    "SparseStaticEmbedding": "sentence_transformers.sparse_encoder.modules.sparse_static_embedding"
    ".SparseStaticEmbedding",
}
CONFIG = "config_sentence_transformers.json"
TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
# Scores are dot products; a temperature divides them, which changes no ranking.
MODEL: dict[str, object] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
MODEL["similarity_fn_name"] = "dot"
CROSS = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder", "prompts": {}}


@dataclass(frozen=True)
class DualShape:
    """What `dual.json` says: how a saved dual encoder makes vectors and scores."""

    shared: bool
    pooling: str
    normalize: bool
    temperature: float
    dimension: int = 0
    dim: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    dense: Sequence[str] = ()
    representation: Mapping[str, object] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Which representation it is."""
        return str(self.representation.get("type", "single"))


def plain_shape(shape: DualShape) -> dict[str, object]:
    """The content of `dual.json`: what is rarely there is left out where it is not."""
    return {name: value for name, value in asdict(shape).items() if value not in (None, {}, [], ())}


def describe_encoder(folder: Path, dimension: int, shape: DualShape) -> None:
    """Make an encoder's folder with states of `dimension` a SentenceTransformer whose similarity is the dot product."""
    _pooled(folder, dimension, shape.pooling, _behind(shape))
    write_json(folder / CONFIG, model_config(shape.prompts))


def describe_two_towers(folder: Path, query: str, passage: str, shape: DualShape) -> None:
    """Make a folder of two towers one SentenceTransformer: `encode_query` and `encode_document` take one each.

    The towers' own folders, which `describe_encoder` has described, are its parts: no weight is stored twice.
    """
    places = _places(["Transformer", "Pooling", *_behind(shape)])
    parts = [{str(Path(tower) / place): name for place, name in places} for tower in (query, passage)]
    write_json(folder / "modules.json", modules(["Router"]))
    write_json(folder / "router_config.json", router(*parts))
    write_json(folder / CONFIG, model_config(shape.prompts))


def router(query: Mapping[str, str], passage: Mapping[str, str]) -> dict[str, object]:
    """`router_config.json` of a model whose sides go through different modules: folder → module of each, in order."""
    return {
        "types": {place: MODULES[name] for place, name in {**query, **passage}.items()},
        "structure": {"query": list(query), "document": list(passage)},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }


def _behind(shape: DualShape) -> list[str]:
    """The modules behind the pooling: the cut at `dim` is saved as one more linear layer."""
    return ["Dense"] * (len(shape.dense) + (shape.dim is not None)) + ["Normalize"] * shape.normalize


def model_config(prompts: Mapping[str, str]) -> dict[str, object]:
    """`config_sentence_transformers.json` of a model with each side's prompt."""
    names = {"query": "query", "passage": "document"}
    return MODEL | {"prompts": {names[side]: text for side, text in prompts.items()}}


def describe_cross_encoder(folder: Path, dimension: int, pooling: str) -> None:
    """Make an encoder's folder with a head in 2_Dense/ a CrossEncoder; scores are the output's sigmoid."""
    _pooled(folder, dimension, pooling, ["Dense"])
    size = {"in_features": dimension, "out_features": 1, "bias": True}
    names = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "2_Dense/config.json", size | activation | names)
    write_json(folder / CONFIG, CROSS)


def _pooled(folder: Path, dimension: int, pooling: str, behind: list[str]) -> None:
    """Describe the modules from token ids to a vector, and those behind them."""
    write_json(folder / "modules.json", modules(["Transformer", "Pooling", *behind]))
    write_json(folder / "sentence_bert_config.json", TRANSFORMER)
    vector = {"embedding_dimension": dimension, "pooling_mode": pooling, "include_prompt": True}
    write_json(folder / "1_Pooling/config.json", vector)


def modules(names: list[str]) -> list[dict[str, object]]:
    """`modules.json`: the modules in the order they are called."""
    places = enumerate(_places(names))
    return [{"idx": i, "name": str(i), "path": place, "type": MODULES[name]} for i, (place, name) in places]


def _places(names: list[str]) -> list[tuple[str, str]]:
    """Each module's folder, which its place in the order names, and the module."""
    return [(f"{i}_{name}" if i else "", name) for i, name in enumerate(names)]


TASKS = {"dual": "sentence-similarity", "cross": "text-ranking"}
POOL = {
    "cls": "hidden[:, 0]",
    "mean": '(hidden * inputs["attention_mask"][..., None]).sum(1) / inputs["attention_mask"].sum(1, keepdim=True)',
    "max": 'hidden.masked_fill(inputs["attention_mask"][..., None] == 0, float("-inf")).amax(1)',
    "weightedmean": '(hidden * (w := inputs["attention_mask"].cumsum(1) * inputs["attention_mask"])[..., None]).sum(1)'
    " / w.sum(1, keepdim=True)",
    "lasttoken": 'hidden[range(len(hidden)), inputs["attention_mask"].cumsum(1).argmax(1)]',
}

ONE = "logits[:, 0]"  # the score of a model with one label
REFUSED = (
    "`AutoModelForSequenceClassification` refuses this folder: the classification head of its family cannot compute "
    "these scores."
)
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
    """The longest inputs of a training, in tokens: query, passage, and special tokens around one text and a pair.

    `longest_pair` is the limit of a pair where it has one of its own; `titled` says that passages are two segments.
    """

    query: int
    passage: int
    single: int
    pair: int
    longest_pair: int | None = None
    titled: bool = False

    @property
    def whole_pair(self) -> int:
        """Tokens of the longest pair, special ones included."""
        return self.longest_pair or self.query + self.passage + self.pair


def front_matter(part: str, base: str | None, licence: str | None) -> str:
    """The YAML block that the hub reads: `part` is `dual` or `cross`; what is unknown is left out."""
    fields: dict[str, object] = {"library_name": "sentence-transformers", "pipeline_tag": TASKS[part]}
    fields |= {"base_model": base} if base else {}
    fields |= {"license": licence.lower()} if licence else {}
    fields["tags"] = ["sentence-transformers", "tandem", "passage-retrieval", f"{part}-encoder"]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---\n"


def dual_usage(shape: DualShape, lengths: Lengths) -> str:
    """How to load the dual encoder of a `dual.json`; each block ends with `scores`, shape (queries, passages)."""
    whole, query, passage = ("dual/shared",) * 3 if shape.shared else ("dual", "dual/query", "dual/passage")
    query_tokens, passage_tokens = lengths.query + lengths.single, lengths.passage + lengths.single
    texts = [
        json.dumps(shape.prompts.get(side, "") + text, ensure_ascii=False)
        for side, text in (("query", "a query"), ("passage", "a passage"))
    ]
    ours = f"""\
```python
from pathlib import Path
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

model, tokenizer = DualEncoder.load(Path("dual")).eval(), load_tokenizer(Path("{passage}"))
template = Template.of(tokenizer)
query, text = tokenizer([{", ".join(texts)}], add_special_tokens=False)["input_ids"]
vectors = [model.encode(*side, template, "fp32") for side in (("query", [query]), ("passage", [text]))]
scores = dot_scores(*vectors, model.temperature)
```"""
    theirs = f"""\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{whole}")
model.max_seq_length = {passage_tokens}  # of a passage; queries were cut to {query_tokens}
queries, passages = model.encode_query(["a query"]), model.encode_document(["a passage"])
scores = model.similarity(queries, passages) / {shape.temperature}
```"""
    if shape.dense:  # transformers does not know them
        return "\n\n".join([ours, theirs])
    vectors = "vectors / vectors.norm(dim=1, keepdim=True)" if shape.normalize else "vectors"
    pool = f"({POOL[shape.pooling]})[:, :{shape.dim}]" if shape.dim else POOL[shape.pooling]
    sides, star = [f"[{text}]" for text in texts], ""
    if lengths.titled:
        title = json.dumps(shape.prompts.get("passage", "") + "a title", ensure_ascii=False)
        sides, star = [f"[{sides[0]}]", f'[[{title}], ["a passage"]]'], "*"
    plain = f"""\
```python
from transformers import AutoModel, AutoTokenizer

def encode(folder, texts, tokens):
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    inputs = tokenizer({star}texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt")
    hidden = model(**inputs).last_hidden_state
    vectors = {pool}
    return {vectors}

queries, passages = encode("{query}", {sides[0]}, {query_tokens}), encode("{passage}", {sides[1]}, {passage_tokens})
scores = queries @ passages.T / {shape.temperature}
```"""
    if lengths.titled:
        return f"Passages are read as two segments, their title (perhaps empty) and their text:\n\n{plain}"
    return "\n\n".join([ours, theirs, plain])


def cross_usage(pooling: str, lengths: Lengths, logit: str | None) -> str:
    """How to load the cross-encoder of a `cross.json`; each block ends with `scores`, shape (pairs,).

    Args:
        logit: the score, in terms of `logits`, where `AutoModelForSequenceClassification` loads the folder; else None.
    """
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
    predicted = "" if logit in (None, ONE) else f"\nscores = {logit}"
    theirs = f"""\
```python
import torch
from sentence_transformers import CrossEncoder

model = CrossEncoder("cross", max_length={lengths.whole_pair})
{"logits" if predicted else "scores"} = model.predict([("a query", "a passage")], activation_fn=torch.nn.Identity())\
{predicted or "  # else their sigmoid"}
```"""
    if pooling == "segments":
        return "\n\n".join([ours, SCORE_SEGMENTS, REFUSED])
    if logit:
        plain = f"""\
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModelForSequenceClassification.from_pretrained("cross")
logits = model(**tokenizer(["a query"], ["a passage"], padding=True, return_tensors="pt")).logits
scores = {logit}
```"""
        return "\n\n".join([ours, theirs, plain])
    plain = f"""\
```python
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModel.from_pretrained("cross")
inputs = tokenizer(["a query"], ["a passage"], padding=True, return_tensors="pt")
hidden, head = model(**inputs).last_hidden_state, load_file("cross/2_Dense/model.safetensors")
vectors = {POOL[pooling]}
scores = (vectors @ head["linear.weight"].T + head["linear.bias"])[:, 0]
```"""
    return "\n\n".join([ours, theirs, plain, REFUSED])


def folders(part: Path) -> list[Path]:
    """The folders of a saved part that sentence-transformers loads, else the part: each of them gets the card."""
    return sorted(path.parent for path in part.rglob("modules.json")) or [part]
