"""How others load saved weights: the code lines of a model's card, the README.md in its folders."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tandem.models.folders import read_optional
from tandem.models.heads import read_architecture
from tandem.models.saving import DualShape
from tandem.registry import Registry

_TASKS = {"dual": "sentence-similarity", "cross": "text-ranking"}
POOLING_CODE = {
    "cls": "hidden[:, 0]",
    "mean": '(hidden * inputs["attention_mask"][..., None]).sum(1) / inputs["attention_mask"].sum(1, keepdim=True)',
    "max": 'hidden.masked_fill(inputs["attention_mask"][..., None] == 0, float("-inf")).amax(1)',
    "weightedmean": '(hidden * (w := inputs["attention_mask"].cumsum(1) * inputs["attention_mask"])[..., None]).sum(1)'
    " / w.sum(1, keepdim=True)",
    "lasttoken": 'hidden[range(len(hidden)), inputs["attention_mask"].cumsum(1).argmax(1)]',
}
_SINGLE_LOGIT = "logits[:, 0]"  # the score of a model with one label
# By the kind of stage that made the token ids, if these are not of a vocabulary's pieces.
usage_of_tokens: Registry[Callable[[DualShape], str]] = Registry(
    "usage of tokens", "usage_of_tokens", "extras.usage", decides=False
)
# By the pooling of a cross-encoder that a package registers: how others compute its scores, from its `cross.json`.
usage_of_pooling: Registry[Callable[[Mapping[str, Any]], str]] = Registry(
    "usage of pooling", "usage_of_pooling", "extras.usage", decides=False
)
# By the form of a cross-encoder: how others compute its scores.
usage_of_form: Registry[Callable[[], str]] = Registry(
    "usage of a form", "usage_of_form", "extras.usage", decides=False
)
EXAMPLE_TEXTS = (("query", "a query"), ("passage", "a passage"))  # of each side
REFUSED_BY_TRANSFORMERS = (
    "`AutoModelForSequenceClassification` refuses this folder: the classification head of its family cannot compute "
    "these scores."
)
_TANDEM_EXAMPLE = """\
```python
{imports}from pathlib import Path
from tandem.models.dual import {names}
from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Template

model, tokenizer = {load}(Path("dual")).eval(), load_tokenizer(Path("{folder}"))
template, plain = {template}, PlainTextTokenizer(tokenizer)
(query, {parts}), _ = plain.tokenise([{texts}])
vectors = [model.encode(*side, template, "fp32") for side in (("query", [query]), ("passage", {passage}))]
scores = {scores}
```"""
_PLAIN_EXAMPLE = {
    "imports": "",
    "template": "Template.of(tokenizer)",
    "parts": "text",
    "passage": "[text]",
}
_SEGMENTS_EXAMPLE = """\
```python
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("cross"), AutoModel.from_pretrained("cross")
inputs = tokenizer(["a query"], ["a passage"], padding=True, return_tensors="pt")
query = inputs.sequence_ids(0).index(1)  # the special tokens before the passage included
hidden, head = model(**{k: v for k, v in inputs.items() if k != "token_type_ids"}).last_hidden_state[0], load_file(
    "cross/2_Dense/model.safetensors"
)
cosine = torch.nn.functional.cosine_similarity(hidden[:query].mean(0), hidden[query:].mean(0), dim=0)
scores = cosine * head["linear.weight"][0] + head["linear.bias"]
```"""


@dataclass(frozen=True)
class InputLengths:
    """A training's longest inputs, in tokens: query, passage, and special tokens around one text and around a pair.

    `longest_pair` is the limit of a pair if it has its own; `titled` means that passages are two segments.
    """

    query: int
    passage: int
    single: int
    pair: int
    longest_pair: int | None = None
    titled: bool = False

    @property
    def whole_pair(self) -> int:
        """Return the tokens of the longest pair, special ones included."""
        return self.longest_pair or self.query + self.passage + self.pair


def write_front_matter(part: str, base: str | None, licence: str | None) -> str:
    """Return the YAML block that the hub reads, without unknown values; `part` is `dual` or `cross`."""
    fields: dict[str, object] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": _TASKS[part],
    }
    fields |= {"base_model": base} if base else {}
    fields |= {"license": licence.lower()} if licence else {}
    fields["tags"] = ["sentence-transformers", "tandem", "passage-retrieval", f"{part}-encoder"]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---\n"


def describe_dual_usage(shape: DualShape, lengths: InputLengths) -> str:
    """Return how to load the dual encoder of a `dual.json`.

    Each block ends with `scores`, shape (queries, passages).
    """
    query, passage = (
        ("dual/shared", "dual/shared") if shape.shared else ("dual/query", "dual/passage")
    )
    query_tokens = lengths.query + lengths.single
    passage_tokens = lengths.passage + lengths.single
    texts = [
        json.dumps(shape.before.get(side, "") + text, ensure_ascii=False)
        for side, text in EXAMPLE_TEXTS
    ]
    names = {"names": "DualEncoder, dot_scores", "load": "DualEncoder.load", "folder": passage}
    words = ", ".join(add_prompt(shape, *text) for text in EXAMPLE_TEXTS)
    ours = _TANDEM_EXAMPLE.format(
        **_PLAIN_EXAMPLE, texts=words, scores="dot_scores(*vectors, model.temperature)", **names
    )
    theirs = describe_library_usage(shape, lengths, "SentenceTransformer")
    if shape.dense and lengths.titled:
        return describe_tandem_usage(shape, lengths)
    if shape.dense:  # transformers does not know these layers
        return "\n\n".join([ours, theirs])
    vectors = "vectors / vectors.norm(dim=1, keepdim=True)" if shape.normalize else "vectors"
    pool = (
        f"({POOLING_CODE[shape.pooling]})[:, :{shape.dim}]"
        if shape.dim
        else POOLING_CODE[shape.pooling]
    )
    sides = [f"[{text}]" for text in texts]
    star = ""
    if lengths.titled:
        title = json.dumps(shape.before.get("passage", "") + "a title", ensure_ascii=False)
        sides = [f"[{sides[0]}]", f'[[{title}], ["a passage"]]']
        star = "*"
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


def describe_library_usage(shape: DualShape, lengths: InputLengths, kind: str) -> str:
    """Return how sentence-transformers loads the model of a `dual.json` by its class `kind`; ends as above.

    It cannot read titles as a segment: then the block shows how Tandem loads the model.
    """
    if lengths.titled:
        return describe_tandem_usage(shape, lengths)
    passage, query = (tokens + lengths.single for tokens in (lengths.passage, lengths.query))
    limits = f"model.max_seq_length = {passage}  # of a passage; queries were cut to {query}"
    if shape.representation.get("queries") == "tokens":
        # no model reads queries: then sentence-transformers applies the tokenizer's own limit
        limits = f"""\
model.max_seq_length = {passage}  # of a passage
model[0].sub_modules["query"][0].tokenizer.model_max_length = {lengths.query}  # else no query is cut"""
    return f"""\
```python
from sentence_transformers import {kind}

model = {kind}("{"dual/shared" if shape.shared else "dual"}")
{limits}
queries, passages = model.encode_query(["a query"]), model.encode_document(["a passage"])
scores = model.similarity(queries, passages) / {shape.temperature}
```"""


def describe_tandem_usage(shape: DualShape, lengths: InputLengths) -> str:
    """Return how Tandem loads the model of a `dual.json`, of any representation.

    The block ends like those of `describe_dual_usage`.
    """
    how = _PLAIN_EXAMPLE
    words = [*EXAMPLE_TEXTS]
    if lengths.titled:
        joined = f"template.with_titles([title], [text], {lengths.passage})"
        how = {
            "imports": "from dataclasses import replace\n",
            "parts": "title, text",
            "passage": joined,
        }
        how["template"] = "replace(Template.of(tokenizer), titled=True)"
        words = [EXAMPLE_TEXTS[0], ("passage", "a title"), ("text", "a passage")]
    texts = ", ".join(add_prompt(shape, *text) for text in words)
    folder = "dual/shared" if shape.shared else "dual/passage"
    names = {"names": "load_dual", "load": "load_dual", "folder": folder}
    return _TANDEM_EXAMPLE.format(**how, texts=texts, scores="model.scores(*vectors)", **names)


def add_prompt(shape: DualShape, side: str, text: str) -> str:
    """Return a side's text after its prompt, as the argument of `PlainTextTokenizer.tokenise`, in Python."""
    own = json.dumps(text)
    prompt = shape.before.get(side)
    return f"plain.prompt({json.dumps(prompt, ensure_ascii=False)}) + {own}" if prompt else own


_COMPARING_EXAMPLE = """\
```python
from pathlib import Path
from tandem.models.cross import CrossEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Template

model, tokenizer = CrossEncoder.load(Path("cross")).eval(), load_tokenizer(Path("cross"))
(query, first, second), _ = PlainTextTokenizer(tokenizer).tokenise(["a query", "a passage", "another"])
template = Template.of(tokenizer)
scores = model([query], [[*first, *model.separator(template), *second]], template, "fp32")
```"""


def describe_cross_usage(cross: Mapping[str, Any], lengths: InputLengths, logit: str | None) -> str:
    """Return how to load the cross-encoder of a `cross.json`; each block ends with `scores`, shape (pairs,).

    Args:
        cross: the result of `read_cross`.
        logit: the score, in terms of `logits`, if `AutoModelForSequenceClassification` loads the folder; else None.
    """
    ours = """\
```python
from pathlib import Path
from tandem.models.cross import CrossEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Template

model, tokenizer = CrossEncoder.load(Path("cross")).eval(), load_tokenizer(Path("cross"))
(query, text), _ = PlainTextTokenizer(tokenizer).tokenise(["a query", "a passage"])
scores = model([query], [text], Template.of(tokenizer), "fp32")
```"""
    if cross["passages"] > 1:
        ours = _COMPARING_EXAMPLE
    pooling = cross["pooling"]
    if pooling in usage_of_pooling:
        return "\n\n".join([ours, usage_of_pooling[pooling](cross)])
    if cross["passages"] > 1:
        return "\n\n".join(
            [ours, "Only so: no other library here reads two passages beside a query."]
        )
    if cross["prompt"]:
        return "\n\n".join(
            [
                ours,
                "Only so: neither transformers nor sentence-transformers writes its prompt around the texts.",
            ]
        )
    predicted = "" if logit in (None, _SINGLE_LOGIT) else f"\nscores = {logit}"
    theirs = f"""\
```python
import torch
from sentence_transformers import CrossEncoder

model = CrossEncoder("cross", max_length={lengths.whole_pair})
{"logits" if predicted else "scores"} = model.predict([("a query", "a passage")], activation_fn=torch.nn.Identity())\
{predicted or "  # else their sigmoid"}
```"""
    if pooling == "segments":
        return "\n\n".join([ours, _SEGMENTS_EXAMPLE, REFUSED_BY_TRANSFORMERS])
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
vectors = {POOLING_CODE[pooling]}
scores = (vectors @ head["linear.weight"].T + head["linear.bias"])[:, 0]
```"""
    return "\n\n".join([ours, theirs, plain, REFUSED_BY_TRANSFORMERS])


def fit_auto_class(usage: str, folder: Path) -> str:
    """Return lines about a saved folder with the class of transformers that loads it.

    `AutoModel` would make T5's encoder a whole T5, with a random decoder.
    """
    name = read_architecture(read_optional(folder / "config.json"))
    if not name.endswith("EncoderModel"):
        return usage
    return re.sub(r"\bAutoModel\b", "AutoModelForTextEncoding", usage)


def list_saved_folders(part: Path) -> list[Path]:
    """Return the folders of a saved part that sentence-transformers loads, else the part itself.

    Each of them gets the card.
    """
    return sorted(path.parent for path in part.rglob("modules.json")) or [part]
