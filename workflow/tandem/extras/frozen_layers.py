"""Compute layers of BERT and its relatives for inference on a CPU, with fewer operations than transformers' own."""

from typing import Any

import torch
from torch import Tensor, nn

from tandem.models.acceleration import FrozenLinear, choose_dtype, is_gelu
from tandem.models.cross import Classifier, CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.encoding import PACKED_FAMILIES, compute_attention_on_cpu

# families whose layers are built as BERT's
BERT_FAMILIES = tuple(family for family in PACKED_FAMILIES if family != "distilbert")


def simplify_layers(encoder: Any, model: nn.Module, mode: str, rows: int) -> None:
    """Replace an encoder's layers by `FrozenLayer`, if they are built as BERT's; others stay as they are.

    So do those of a model that reads the states of several layers, which transformers collects of its own layers alone.

    Args:
        model: the dual encoder or cross-encoder that reads the encoder's states.
        rows: about how many tokens a batch has; the layout of the weights suits that number.
    """
    reads_layers = getattr(getattr(model, "options", None), "layers", None)
    if encoder.config.model_type not in BERT_FAMILIES or reads_layers:
        return
    layers = encoder.base_model.encoder.layer  # beneath a head that predicts tokens, too
    last = len(layers) - 1
    for number, layer in enumerate(layers):
        if not isinstance(layer, FrozenLayer) and not layer.is_decoder:
            is_narrow = number == last and _reads_first_token(model)
            layers[number] = FrozenLayer(layer, is_narrow, choose_dtype(mode), rows)


def _reads_first_token(model: nn.Module) -> bool:
    """Return whether a model reads of its encoder's last layer only each text's first token."""
    if type(model) is CrossEncoder:
        head = model.head
        return (head.pooling if isinstance(head, Classifier) else model.pooling) == "cls"
    return type(model) is DualEncoder and model.pooling == "cls"


class FrozenLayer(nn.Module):
    """Compute a layer of BERT for inference: one product gives queries, keys and values, and products add residuals.

    States between operations have the type of the products' factors, as they have on a GPU; norms and softmax compute
    in float32.

    A narrow layer computes only each text's first token, which is all that `cls` pooling reads of the last layer: keys
    and values are computed for all tokens, everything else for the first one. In BERT with six layers this saves a
    seventh of the products with weights. The other tokens get the first one's vector, which nothing reads.

    Args:
        plain: the layer, before it is frozen.
        dtype: see `FrozenLinear`.
    """

    def __init__(self, plain: Any, is_narrow: bool, dtype: torch.dtype, rows: int) -> None:
        super().__init__()
        attention = plain.attention.self
        parts = [attention.query, attention.key, attention.value]
        self.is_narrow = is_narrow
        self.is_causal = False
        self.head_size = attention.attention_head_size
        self.scaling = attention.scaling
        self.dtype = dtype
        joined = [parts[:1], parts[1:]] if is_narrow else [parts]
        self.projections = nn.ModuleList(
            FrozenLinear(join_layers(each), dtype, rows, gelu=False) for each in joined
        )
        self.mixing = FrozenLinear(plain.attention.output.dense, dtype, rows, gelu=False)
        self.mixing_norm = plain.attention.output.LayerNorm
        self.activation = plain.intermediate.intermediate_act_fn
        has_gelu = is_gelu(self.activation)
        self.widening = FrozenLinear(plain.intermediate.dense, dtype, rows, has_gelu)
        if has_gelu:
            self.activation = nn.Identity()
        self.narrowing = FrozenLinear(plain.output.dense, dtype, rows, gelu=False)
        self.norm = plain.output.LayerNorm

    def forward(
        self, hidden: Tensor, attention_mask: Tensor | None = None, *passed: Any, **over: Any
    ) -> Tensor:
        """Return states, shape (texts, length, dim); other arguments are for decoders."""
        hidden = hidden.to(self.dtype)
        with torch.autocast("cpu", enabled=False):
            read = hidden[:, :1] if self.is_narrow else hidden
            mixed = self.attend(hidden, attention_mask)
            attended = self.mixing_norm(self.mixing(mixed, read))
            wide = self.activation(self.widening(attended))
            states: Tensor = self.norm(self.narrowing(wide, attended))
        return states.expand_as(hidden)

    def attend(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mixed values of the tokens that are attended to, shape (texts, length or 1, dim)."""
        if self.is_narrow:
            first, others = self.projections
            # The query is repeated for every token, so that the kernel of whole layers runs and no bit changes. For
            # a single query another kernel would split sums by the number of threads.
            queries = first(hidden[:, :1]).expand_as(hidden)
            keys, values = others(hidden).chunk(2, -1)
            # The mask has a row per query: the first one's row is repeated, too.
            mask = None if mask is None else mask[:, :, :1].expand_as(mask)
        else:
            queries, keys, values = self.projections[0](hidden).chunk(3, -1)

        def split_heads(states: Tensor) -> Tensor:
            """Return states, shape (texts, heads, length, head_size)."""
            heads: Tensor = states.unflatten(-1, (-1, self.head_size))
            return heads.transpose(1, 2)

        query, key, value = map(split_heads, (queries, keys, values))
        mixed, _ = compute_attention_on_cpu(self, query, key, value, mask, scaling=self.scaling)
        return mixed[:, : 1 if self.is_narrow else None].flatten(2)


def join_layers(layers: list[nn.Linear]) -> nn.Linear:
    """Return the linear layer whose output is that of several layers, one after another."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    joined = nn.Linear(weight.shape[1], len(weight), device="meta")
    joined.weight = nn.Parameter(weight)
    joined.bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]))
    return joined
