"""CharacterBERT (El Boukkouri et al. 2020): BERT whose input vectors are computed from each word's characters.

A word's characters become vectors. Filters of several widths pass over these, and each filter's largest output is kept.
Highway layers (Srivastava et al. 2015) and a linear layer then compute the vector that BERT would look up.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertConfig, BertModel

from tandem.config.encoders import LONGEST_WORD
from tandem.models.hub import encoder_family
from tandem.models.tokens import PADDING_OF_WORD

FAMILY = "character_bert"
_CHARACTERS = 263  # characters have the numbers 0 to 262; the last one represents [MASK]
_CARRIED = 1.0  # bias of new highway gates: at first, a layer mostly passes its input on


class CharacterBertConfig(BertConfig):  # type: ignore[misc]
    """Sizes of BERT, and of the layers that compute its input vectors."""

    model_type = FAMILY

    character_size: int = 16
    filters: list[list[int]] | None = None  # width and number of each kind
    highway_layers: int = 2


class CharacterCnn(nn.Module):
    """Compute words' vectors from their characters."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        filters = config.filters or []
        size = sum(number for _, number in filters)
        self.characters = nn.Embedding(_CHARACTERS, config.character_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(config.character_size, number, width) for width, number in filters
        )
        # the first half of each layer's output is a new value, the second the gate
        self.highways = nn.ModuleList(
            nn.Linear(size, 2 * size) for _ in range(config.highway_layers)
        )
        self.projection = nn.Linear(size, config.hidden_size)
        self.widest = max((width for width, _ in filters), default=1)

    def draw(self) -> None:
        """Draw all weights anew, as PyTorch does for new layers; gates are open for a layer's input at first."""
        layer: Any
        for layer in (self.characters, *self.filters, *self.highways, self.projection):
            layer.reset_parameters()
        for layer in self.highways:
            nn.init.constant_(layer.bias[layer.out_features // 2 :], _CARRIED)

    def forward(self, words: Tensor) -> Tensor:
        """Return vectors of words.

        After the end of the longest word, all windows contain only padding, so that one of them is enough.

        Args:
            words: numbers of their characters, shape (words, LONGEST_WORD).
        Returns:
            Shape (words, hidden size).
        """
        longest = int((words != PADDING_OF_WORD).sum(1).max())
        looked_at = words[:, : min(LONGEST_WORD, longest + self.widest)]
        letters = self.characters(looked_at).transpose(1, 2)
        answers = [layer(letters).amax(2).relu() for layer in self.filters]
        state = torch.cat(answers, 1)
        for layer in self.highways:
            new, gate = layer(state).chunk(2, dim=1)
            carried = gate.sigmoid()
            state = carried * state + (1 - carried) * new.relu()
        vectors: Tensor = self.projection(state)
        return vectors


class CharacterBertModel(BertModel):  # type: ignore[misc]
    """BERT that reads words by their characters."""

    config_class = CharacterBertConfig

    def __init__(self, config: CharacterBertConfig, add_pooling_layer: bool = False) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.embeddings.word_embeddings = CharacterCnn(config)

    def forward(self, input_ids: Tensor, characters: Tensor, **options: Any) -> Any:
        """Return BERT's outputs.

        Args:
            input_ids: each token's row in `characters`, shape (texts, tokens).
            characters: numbers of the words' characters, shape (words, LONGEST_WORD).
            options: BERT's own, such as `attention_mask`.
        """
        vectors = self.embeddings.word_embeddings(characters)
        return super().forward(inputs_embeds=vectors[input_ids], **options)


@encoder_family("character_bert")
def register_character_bert() -> None:
    """Register such encoders with transformers, so that it loads them from folders."""
    AutoConfig.register(FAMILY, CharacterBertConfig, exist_ok=True)
    AutoModel.register(CharacterBertConfig, CharacterBertModel, exist_ok=True)
