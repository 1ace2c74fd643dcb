"""Late interaction, a vector for every token: s(q, p) = Σ_i max_j E(q)_i · E(p)_j (ColBERT, Khattab and Zaharia 2020).

Texts are padded with rows of zeros, so that the vectors of several texts fit into one tensor: a row of zeros is not a
token.
"""

import string
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.late_interaction.options import Multi
from tandem.contrib.late_interaction.token_scores import compute_max_sim
from tandem.errors import UserError
from tandem.extras.usage import InputLengths, describe_tandem_usage
from tandem.models.device import place_all, precision
from tandem.models.dual import SIDES, DualEncoder
from tandem.models.hub import add_markers, count_ids, load_tokenizer
from tandem.models.ragged import Ids, Ragged
from tandem.models.saving import (
    LIBRARY_CONFIG,
    MODEL,
    MODULE_TYPES,
    TOKEN_VECTORS,
    TRANSFORMER,
    Dense,
    DualShape,
    list_modules,
)
from tandem.models.tokens import Template, TokenTexts
from tandem.store.files import write_json

_MASK = "MultiVectorMask"
_MODULE_TYPES = MODULE_TYPES | {
    _MASK: f"sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.{_MASK}"
}


@representation("multi")
class TokenVectors(DualEncoder):
    """Encode each text as a vector for every token.

    The encoder's states go through the linear layers of a side; a new model has one layer without bias, with
    `options.dim` outputs. Queries are filled up with [MASK] tokens, which have vectors, too; punctuation of passages
    has none. Token ids already contain the markers; markers that the vocabulary lacks get new embeddings in the
    encoder.

    Attributes:
        mask_id: the [MASK] token.
        skipped: ids of passages' tokens that have no vectors, shape (ids,).
    """

    packs = False
    reads = TOKEN_VECTORS
    options: Multi
    mask_id: int
    skipped: Tensor

    @classmethod
    def _check_options(cls, folder: Path, shape: DualShape) -> None:
        if shape.dim is not None:
            raise UserError(
                f"{folder}: dim is {shape.dim}; say instead representation: {{type: multi, dim: …}}"
            )

    def _prepare_start(self, folder: Path, shape: DualShape) -> None:
        self._embed_markers(folder)
        if shape.dense and self.options.dim not in (None, self.full_dimension):
            problem = f"representation.dim is {self.options.dim}, but its layers {', '.join(shape.dense)} make"
            hint = (
                f"say {self.full_dimension}, or dense: [] in its entry of encoders for a new layer"
            )
            raise UserError(f"{folder}: {problem} {self.full_dimension} numbers; {hint}")
        if self.options.dim and not shape.dense:
            linear = nn.Linear(self.full_dimension, self.options.dim, bias=False)
            nn.init.normal_(linear.weight, std=0.02)
            self._add_layers([Dense(linear, nn.Identity(), TOKEN_VECTORS)])

    def _embed_markers(self, folder: Path) -> None:
        """Draw embeddings for the markers that the encoder's vocabulary lacks, the same ones on both sides."""
        tokenizer = load_tokenizer(folder)
        add_markers(tokenizer, self.options.side_markers)
        query, passage = (cast(Any, self.towers[side]) for side in SIDES)
        needed = count_ids(tokenizer)
        if needed <= passage.get_input_embeddings().num_embeddings:
            return
        passage.resize_token_embeddings(needed, mean_resizing=False)
        if not self.shared:
            query.resize_token_embeddings(needed, mean_resizing=False)
            query.get_input_embeddings().load_state_dict(
                passage.get_input_embeddings().state_dict()
            )

    def mark(self, tokenizer: Any) -> dict[str, str]:
        """Add the markers to a tokenizer; return each side's marker and prompt as one text; see `DualShape.marked`."""
        markers = self.options.side_markers
        add_markers(tokenizer, markers)
        return {
            side: mark_prompt(tokenizer, markers.get(side), self.prompts.get(side, ""))
            for side in SIDES
            if markers
        }

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        model = super()._read(query, passage, shape)
        tokenizer = load_tokenizer(query)
        if model.options.query_tokens and tokenizer.mask_token_id is None:
            raise UserError(
                f"{query}: its tokenizer has no mask token to fill queries up; set query_tokens to null"
            )
        if model.options.query_tokens and tokenizer.padding_side == "left":
            problem = "pads on the left, where sentence-transformers fills queries up"
            raise UserError(f"{query}: its tokenizer {problem}; set query_tokens to null")
        marks = list(string.punctuation) if model.options.skip_punctuation else []
        unknown = (None, tokenizer.unk_token_id)
        skipped = sorted(
            {token for token in tokenizer.convert_tokens_to_ids(marks) if token not in unknown}
        )
        model.know(int(tokenizer.mask_token_id or 0), skipped)
        return model

    def know(self, mask_id: int, skipped: list[int]) -> None:
        """Set `mask_id` and `skipped`, the ids of the tokens that the options refer to."""
        self.mask_id = mask_id
        self.register_buffer("skipped", torch.tensor(skipped, dtype=torch.int64), persistent=False)

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """Return the number of tokens, and how many numbers a vector has."""
        return (int(self.options.count_rows(side, longest)), self.dimension)

    def counts(self, side: str, texts: Ragged, template: Template) -> Ids:
        """Return how many vectors each text has, without computing them, shape (texts,)."""
        counts: Ids = np.diff(texts.offsets) + template.extra[0]
        if side == "query" and self.options.query_tokens:
            counts = np.full(len(texts), self.options.query_tokens)
        elif side == "passage":
            remaining = counts - texts.count_ids(self.skipped.cpu().numpy())
            counts = np.where(remaining > 0, remaining, counts)
        least: Ids = np.minimum(counts, self.options.first(side) or counts)
        return least

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return vectors of texts' tokens, shape (texts, tokens, dimension), float32; a row of zeros is not a token."""
        rows = Ragged.of(texts)
        expanded = self.options.query_tokens if side == "query" else None
        if expanded:
            rows = rows.cut(np.diff(rows.offsets).clip(max=expanded - template.extra[0]))
        inputs = template.single_inputs(rows, side)
        width = expanded or int(inputs.lengths.max(initial=0))
        arguments = place_all(inputs.to_tensors(multiple, width))
        ids = arguments["input_ids"]
        stands = arguments["attention_mask"].bool()
        if expanded:
            filler = ~stands & (torch.arange(ids.shape[1], device=ids.device) < expanded)
            arguments["input_ids"] = ids.masked_fill(filler, self.mask_id)
            stands = stands | filler
            if self.options.attend:
                arguments["attention_mask"] = stands.to(arguments["attention_mask"].dtype)
        elif side == "passage":
            remaining = stands & ~torch.isin(ids, self.skipped)
            stands = torch.where(remaining.any(1, keepdim=True), remaining, stands)
        with precision(mode):
            states = self.towers[side](**arguments).last_hidden_state

        count = self.options.first(side)
        if count:  # a stable sort puts the tokens that have vectors first, in their order
            places = (~stands).byte().argsort(stable=True, dim=1)[:, :count]
            states = states.take_along_dim(places[..., None], 1)
            stands = stands.take_along_dim(places, 1)
        vectors: Tensor = states.to(torch.promote_types(states.dtype, torch.float32))
        for layer in self.layers(side):
            vectors = layer(vectors)
        if self.normalize:
            vectors = nn.functional.normalize(vectors, dim=-1)
        return (vectors * stands[..., None])[:, :width]

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Return `compute_max_sim` divided by this model's temperature."""
        return compute_max_sim(queries, passages) / self.temperature

    def check_lengths(self, query: int, passage: int, template: Template, where: str) -> None:
        """See `DualEncoder.check_lengths`; a query may be filled up beyond its own length."""
        filled = (self.options.query_tokens or 0) - template.extra[0]
        super().check_lengths(max(query, filled), passage, template, where)

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write nothing: each of two towers is a MultiVectorEncoder by itself."""

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write the files of a MultiVectorEncoder, whose scores are this model's before the temperature.

        A MultiVectorEncoder has a vector for every token. If texts have fewer vectors, no file is written.
        """
        if self.options.query_vectors or self.options.passage_vectors:
            return
        names = [*["Dense"] * len(shape.dense), _MASK, *["Normalize"] * shape.normalize]
        write_json(folder / "modules.json", list_modules(["Transformer", *names], _MODULE_TYPES))
        inputs = {**TRANSFORMER}
        if self.options.query_tokens:
            inputs["query_expansion"] = {
                "strategy": "fixed",
                "length": self.options.query_tokens,
                "attend": self.options.attend,
            }
        write_json(folder / "sentence_bert_config.json", inputs)
        words = list(string.punctuation) if self.options.skip_punctuation else []
        mask = f"{1 + len(shape.dense)}_{_MASK}"
        write_json(
            folder / mask / "config.json", {"skiplist_words": words, "skiplist_tasks": ["document"]}
        )
        if shape.normalize:
            write_json(
                folder / f"{2 + len(shape.dense)}_Normalize/config.json",
                {"module_input_name": TOKEN_VECTORS},
            )
        prompts = {
            "query": shape.before.get("query", ""),
            "document": shape.before.get("passage", ""),
        }
        kind = {
            "model_type": "MultiVectorEncoder",
            "similarity_fn_name": "maxsim",
            "prompts": prompts,
        }
        write_json(
            folder / LIBRARY_CONFIG,
            MODEL | kind | self._pylate(load_tokenizer(folder), prompts, words),
        )

    def _pylate(
        self, tokenizer: Any, prompts: dict[str, str], skipped: list[str]
    ) -> dict[str, object]:
        """Return PyLate's keys for readers that know them: without these keys, such readers use markers of their own.

        Args:
            prompts: the text in front of queries and of documents; a special token at its beginning is a marker.
            skipped: words without a vector.
        """
        expanded = self.options.query_tokens
        config: dict[str, object] = {
            f"{side}_prefix": find_leading_token(tokenizer, prompt)
            for side, prompt in prompts.items()
        }
        if expanded:
            config["query_length"] = expanded
        config["do_query_expansion"] = bool(expanded)
        config["attend_to_expansion_tokens"] = self.options.attend
        config["skiplist_words"] = skipped
        return config

    @staticmethod
    def usage(shape: DualShape, lengths: InputLengths) -> str:
        """Return how to load a late-interaction model with this `dual.json`.

        Each block ends with `scores`, shape (queries, passages).
        """
        if lengths.titled or shape.representation.keys() & {"query_vectors", "passage_vectors"}:
            return describe_tandem_usage(shape, lengths)
        query, passage = (
            ("dual/shared", "dual/shared") if shape.shared else ("dual/query", "dual/passage")
        )
        query_tokens = lengths.query + lengths.single
        filled = shape.representation.get("query_tokens")
        more = ""
        if isinstance(filled, int) and filled > query_tokens:
            more = f"  # of a longer one {filled} are read all the same"
        theirs = _LIBRARY_EXAMPLE.format(
            query=query,
            passage=passage,
            query_tokens=f"{query_tokens}{more}",
            passage_tokens=lengths.passage + lengths.single,
            temperature=shape.temperature,
        )
        return f"{describe_tandem_usage(shape, lengths)}\n\n{theirs}"


def mark_prompt(tokenizer: Any, marker: str | None, prompt: str) -> str:
    """Return a side's marker and prompt as one text: its first token is the marker, the others are the prompt's.

    Whether a space is needed between them depends on the tokenizer: it may treat the text after a token like the
    beginning of a text, or not.
    """
    if marker is None or prompt.startswith(marker):
        return prompt
    probe = f"{prompt}a b"
    expected = [
        tokenizer.convert_tokens_to_ids(marker),
        *tokenizer(probe, add_special_tokens=False)["input_ids"],
    ]
    spaced = tokenizer(f"{marker} {probe}", add_special_tokens=False)["input_ids"]
    return f"{marker} {prompt}" if spaced == expected else f"{marker}{prompt}"


def find_leading_token(tokenizer: Any, prompt: str) -> str:
    """Return the special token that a prompt begins with; empty if it begins with an ordinary token."""
    special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return max((token for token in special if prompt.startswith(token)), key=len, default="")


_LIBRARY_EXAMPLE = """\
```python
from sentence_transformers import MultiVectorEncoder

queries, passages = MultiVectorEncoder("{query}"), MultiVectorEncoder("{passage}")
passages.max_seq_length = {passage_tokens}
queries.max_seq_length = {query_tokens}
vectors = queries.encode_query(["a query"]), passages.encode_document(["a passage"])
scores = queries.similarity(*vectors) / {temperature}
```"""
