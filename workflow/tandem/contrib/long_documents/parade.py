"""PARADE: a cross-encoder of long documents, which reads the query with each window and aggregates the vectors.

Li, Yates, MacAvaney, He and Sun, PARADE: Passage Representation Aggregation for Document Reranking, 2020. FirstP and
MaxP combine scores of windows. Here a document's windows become one vector, and the head scores this vector.
"""

from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.config.references import parameters_of
from tandem.contrib.long_documents.document_tokens import Documents
from tandem.contrib.long_documents.options import PARADE_POOLINGS, ParadeOptions
from tandem.errors import UserError
from tandem.extras.usage import REFUSED_BY_TRANSFORMERS, usage_of_form
from tandem.models.cross import (
    FINE_STEP,
    CrossEncoder,
    load_head,
    read_cross,
    save_head,
    save_whole,
)
from tandem.models.device import place_array
from tandem.models.encoding import SIDE_BY_SIDE, encode_and_pool, make_equal_batches
from tandem.models.folders import PAIR_LENGTH_STEP, WEIGHTS_FILE
from tandem.models.hub import load_encoder, save_encoder
from tandem.models.pair_prompts import PLAIN_PAIR
from tandem.models.ragged import Ids, Ragged, round_up
from tandem.models.tokens import Inputs, Template, TokenTexts
from tandem.store.files import write_json
from tandem.store.job import load

AGGREGATOR_FILE = f"3_Aggregator/{WEIGHTS_FILE}"
# weights that every cross-encoder has; all others belong to the aggregation
_OF_CROSS_ENCODERS = ("encoder.", "head.")
# documents that are aggregated together: always this many, filled up, so that results are the same bit for bit
DOCUMENTS_PER_BATCH = 8
_STANDARD_DEVIATION = 0.02  # of new weights, as BERT's
Options = parameters_of(ParadeOptions)
_EXAMPLE = """\
```python
from pathlib import Path
import numpy as np
from tandem.contrib.long_documents.document_tokens import Documents
from tandem.contrib.long_documents.parade import Parade
from tandem.models.hub import load_tokenizer
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template

model, tokenizer = Parade.load(Path("cross")).eval(), load_tokenizer(Path("cross"))
(query, *windows), _ = PlainTextTokenizer(tokenizer).tokenise(["a query", "a document's first", "and second window"])
document = Documents.join(Ragged.of(windows), np.array([0, len(windows)]))
scores = model([query], document, Template.of(tokenizer), "fp32")
```"""


class Parade(CrossEncoder):
    """Score documents by their windows' vectors: s(q, d) = head(aggregate(v₁, …, vₙ)), vᵢ = pooled states of (q, wᵢ).

    - `mean`, `max`, `sum`: of each number over the windows (PARADE-Avg, -Max, -Sum).
    - `attention`: Σ aᵢ vᵢ with a = softmax over the windows of w · vᵢ (PARADE-Attn).
    - `transformer`: the first state of new Transformer layers like BERT's over (e, v₁, …, vₙ). Here e is the embedding
      of the first special token; no positions are added. Both are as in the release by default (PARADE-Transformer).

    The vectors are the raw pooled states, as the head of every cross-encoder reads them here; in the release, they go
    through BERT's tanh layer first.
    """

    def __init__(self, encoder: nn.Module, pooling: str, options: ParadeOptions) -> None:
        if pooling not in PARADE_POOLINGS:
            raise UserError(f"parade: pooling is {pooling}; allowed: {', '.join(PARADE_POOLINGS)}")
        super().__init__(encoder, pooling)
        self.parade = options
        config: Any = encoder.config
        size = int(config.hidden_size)
        self.attention: nn.Module | None = None
        self.layers = nn.ModuleList()
        if options.aggregate == "attention":
            self.attention = nn.Linear(size, 1, bias=False)
        elif options.aggregate == "transformer":
            heads = int(getattr(config, "num_attention_heads", max(1, size // 64)))
            width = int(getattr(config, "intermediate_size", 4 * size))
            dropout = self.dropout.p
            for _ in range(options.layers):
                layer = nn.TransformerEncoderLayer(
                    size, heads, width, dropout, "gelu", 1e-12, batch_first=True
                )
                self.layers.append(layer)

    @classmethod
    def over(cls, cross: CrossEncoder, options: ParadeOptions) -> Self:
        """Return PARADE with the encoder and head of a cross-encoder; its other weights are drawn by torch's generator.

        The head must be linear on one vector, and the input must be a query and a passage without a prompt.
        """
        if cross.options != PLAIN_PAIR or not isinstance(cross.head, nn.Linear):
            raise UserError(
                "parade: it starts from a cross-encoder with a linear head that reads no prompt"
            )
        model = cls(cross.encoder, cross.pooling, options)
        model.head = cross.head
        for name, parameter in model.named_parameters():
            if name.startswith(_OF_CROSS_ENCODERS):
                continue
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_STANDARD_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        return model

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the model that `save` wrote."""
        options = Options.model_validate(read_cross(folder)["parade"])
        model = cls(load_encoder(folder), read_cross(folder)["pooling"], options)
        load_head(folder, model.head)
        if (folder / AGGREGATOR_FILE).is_file():
            missing, unknown = model.load_state_dict(
                load_file(folder / AGGREGATOR_FILE), strict=False
            )
            absent = [name for name in missing if not name.startswith(_OF_CROSS_ENCODERS)]
            if absent or unknown:
                raise UserError(
                    f"{folder / AGGREGATOR_FILE}: does not hold {(absent or unknown)[0]} as its model does"
                )
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write a folder that `load_cross` reads; transformers loads the encoder, and refuses it as a classifier."""
        save_encoder(
            self.encoder, tokenizer, folder, partial(save_whole, head=self.head, pooling="parade")
        )
        save_head(folder, self.head)
        own = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in self.state_dict().items()
            if not name.startswith(_OF_CROSS_ENCODERS)
        }
        if own:
            (folder / AGGREGATOR_FILE).parent.mkdir()
            save_file(own, folder / AGGREGATOR_FILE)
        described = {
            "pooling": self.pooling,
            **self.options.differences(),
            "parade": self.parade.model_dump(mode="json"),
        }
        write_json(folder / "cross.json", described)

    def join_texts(self, queries: Ragged, passages: Ragged, template: Template) -> Inputs:
        """Return inputs that pair each query with every window of its document: a row per window, by document."""
        documents = require_documents(passages)
        owners = np.repeat(np.arange(len(documents)), np.diff(documents.bounds))
        return self.adapt(template).pair_inputs(queries.take(owners), documents.windows)

    def forward(
        self,
        queries: TokenTexts,
        passages: TokenTexts,
        template: Template,
        mode: str,
        multiple: int = 1,
    ) -> Tensor:
        """Return the scores of pairs of a query and a document as one batch, padded or packed.

        Args:
            queries: token ids, one text per pair.
            passages: the pairs' `Documents`.
            multiple: pad windows to a multiple of this length; it has no effect if they are packed.
        Returns:
            Logits, shape (pairs,), float32.
        """
        documents = require_documents(passages)
        inputs = self.join_texts(Ragged.of(queries), documents, template)
        vectors = encode_and_pool(self.encoder, inputs, self.pooling, mode, self.packed, multiple)

        # The vectors of a document's windows become a row; places without a window are masked.
        sizes = np.diff(documents.bounds)
        stands = np.arange(int(sizes.max(initial=1))) < sizes[:, None]
        places = place_array(np.argwhere(stands))
        padded = vectors.new_zeros(*stands.shape, vectors.shape[-1])
        padded = padded.index_put((places[:, 0], places[:, 1]), vectors)
        return self.score_vectors(padded, place_array(stands), template)

    def score_vectors(self, vectors: Tensor, stands: Tensor, template: Template) -> Tensor:
        """Return the logits of documents from their windows' vectors.

        Args:
            vectors: shape (documents, windows, dim).
            stands: True where there is a window, shape (documents, windows); at least one for each document.
        """
        scores: Tensor = self.head(self.dropout(self.aggregate(vectors, stands, template)))[:, 0]
        return scores

    def aggregate(self, vectors: Tensor, stands: Tensor, template: Template) -> Tensor:
        """Return one vector per document, shape (documents, dim); see the class."""
        weights = stands[..., None].to(vectors.dtype)
        match self.parade.aggregate:
            case "mean":
                return (vectors * weights).sum(1) / weights.sum(1)
            case "sum":
                return (vectors * weights).sum(1)
            case "max":
                return vectors.masked_fill(~stands[..., None], -torch.inf).amax(1)
            case "attention":
                assert self.attention is not None
                logits: Tensor = self.attention(vectors)[..., 0]
                shares = logits.masked_fill(~stands, -torch.inf).softmax(-1)
                return (vectors * shares[..., None]).sum(1)
            case "transformer":
                return self._transform(vectors, stands, template)

    def _transform(self, vectors: Tensor, stands: Tensor, template: Template) -> Tensor:
        """Return the first state of the Transformer over the first special token's embedding and the vectors."""
        encoder: Any = self.encoder
        first = torch.tensor(
            [template.pair[0][0] if template.pair[0] else template.pad], device=vectors.device
        )
        token = encoder.get_input_embeddings()(first).to(vectors.dtype)
        states = torch.cat([token.expand(len(vectors), 1, -1), vectors], 1)
        hidden = torch.cat([torch.zeros_like(stands[:, :1]), ~stands], 1)
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=hidden)
        return states[:, 0]

    @torch.inference_mode()
    def score(
        self, queries: TokenTexts, passages: TokenTexts, template: Template, mode: str, budget: int
    ) -> Ids:
        """Return scores that do not depend on which pairs are scored together; see `CrossEncoder.score`.

        Windows are encoded in batches of the same length, and documents are aggregated in batches of the same number of
        windows. Memory: the vectors of the windows of all pairs.

        Returns:
            Logits, shape (pairs,), float32.
        """
        self.eval()
        documents = require_documents(passages)
        first = Ragged.of(queries)
        sizes = np.diff(documents.bounds)
        owners = np.repeat(np.arange(len(documents)), sizes)
        step = FINE_STEP if self.any_rows else PAIR_LENGTH_STEP
        read = self.adapt(template)
        lengths = read.pair_lengths(
            np.diff(first.offsets)[owners], np.diff(documents.windows.offsets)
        )
        padded = round_up(lengths, step)
        config: Any = self.encoder.config
        vectors = np.empty((len(padded), int(config.hidden_size)), np.float32)

        def encode(part: tuple[Ids, int]) -> Tensor:
            """Return the vectors of a batch of windows, which is filled up to the batch's number of rows."""
            batch, rows = part
            inputs = read.pair_inputs(first.take(owners[batch]), documents.windows.take(batch))
            inputs = inputs if self.any_rows else inputs.fill_up(rows)
            length = int(padded[batch[0]])
            pooled = encode_and_pool(self.encoder, inputs, self.pooling, mode, None, length)
            return pooled[: len(batch)]

        batches = list(make_equal_batches(padded, budget))
        encoded = load(SIDE_BY_SIDE)(encode, batches)
        for (batch, _), states in zip(batches, encoded, strict=True):
            vectors[batch] = states.cpu().numpy()

        scores = np.empty(len(documents), np.float32)
        for count in np.unique(sizes):
            members = np.flatnonzero(sizes == count)
            for start in range(0, len(members), DOCUMENTS_PER_BATCH):
                batch = members[start : start + DOCUMENTS_PER_BATCH]
                # The last batch is filled up with its first document.
                filled = np.full(DOCUMENTS_PER_BATCH, batch[0])
                filled[: len(batch)] = batch
                rows_of_windows = documents.bounds[filled][:, None] + np.arange(count)
                own = place_array(vectors[rows_of_windows])
                stands = torch.ones(own.shape[:2], dtype=torch.bool, device=own.device)
                logits = self.score_vectors(own, stands, template)
                scores[batch] = logits[: len(batch)].float().cpu().numpy()
        return scores


def require_documents(passages: TokenTexts) -> Documents:
    """Return `passages` if they are token ids of documents; raise a `ValueError` for any other token ids."""
    if not isinstance(passages, Documents):
        raise ValueError("PARADE reads documents by their windows, not passages")
    return passages


def load_parade(folder: Path) -> CrossEncoder:
    """Return the PARADE model of a folder."""
    return Parade.load(folder)


def start_parade(cross: CrossEncoder, options: ParadeOptions) -> CrossEncoder:
    """Return PARADE over a cross-encoder; see `Parade.over`."""
    return Parade.over(cross, options)


@usage_of_form("parade")
def describe_parade_usage() -> str:
    """Return how Tandem loads a cross-encoder that aggregates windows; the code ends with `scores`, shape (pairs,)."""
    return f"{_EXAMPLE}\n\n{REFUSED_BY_TRANSFORMERS}"
