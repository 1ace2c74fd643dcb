"""The keys of encoders with source `characters`, and the parameters of the stage that trains them."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from tandem.config.base import Items, Section, problem
from tandem.config.encoders import LONGEST_WORD, MadeEncoder
from tandem.stages.base import Params

# in the order of their ids
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Filter = Items[int]


class CharacterInput(Section):
    """How a word's vector is computed from its characters; the sizes are the paper's."""

    lowercase: bool = Field(True, description="texts are lowercased and lose their accents")
    character_size: int = Field(16, ge=1, description="numbers of a character's vector")
    filters: Items[Filter] = Field(
        ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        min_length=1,
        description="width in characters and number of the filters of each kind",
    )
    highway_layers: int = Field(2, ge=0, description="highway layers after the filters")

    @field_validator("filters")
    @classmethod
    def _fit(cls, filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
        for number, each in enumerate(filters):
            if len(each) != 2 or not 1 <= each[0] <= LONGEST_WORD or each[1] < 1:
                allowed = f"a width from 1 to {LONGEST_WORD} and a number from 1"
                raise problem(f".{number} is {[*each]}; allowed: {allowed}")
        return filters


class Imitation(Section):
    """How the input learns the vectors that `start` has of whole words (Pinter et al. 2017, Mimick)."""

    steps: int = Field(1000, ge=0, description="0: the input stays random")
    words_per_batch: int = Field(256, ge=1, description="words of a step")
    lr: float = Field(1e-3, gt=0, description="first learning rate, from which it falls to 0")
    seed: int | None = Field(None, ge=0, description="null: the configuration's")


class CharacterEncoder(CharacterInput, MadeEncoder):
    """An encoder that reads words by their characters: the layers of `start` above CharacterBERT's input."""

    source: Literal["characters"] = Field(description="where the encoder comes from")
    start: str = Field(description="BERT whose layers it uses")
    imitation: Imitation = Field(Imitation(), description="how the new input learns at first")

    has_own_tokenizer: ClassVar[bool] = True


class CharacterEncoderParams(CharacterInput, Params):
    """The layers of an encoder above an input of characters."""

    imitation: Imitation = Field(description="how the new input learns; the seed is set")
