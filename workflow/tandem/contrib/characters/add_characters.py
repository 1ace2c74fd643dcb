"""Stage `character_encoder`: put CharacterBERT's input below the layers of a published BERT.

The input's weights are random at first. It learns to reproduce the encoder's vectors of the whole words in its
vocabulary, so that the layers above read nearly the inputs that they know. For words of several pieces, it computes
vectors from their characters only.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from tandem.cluster.progress import Progress
from tandem.contrib.characters.cnn import CharacterBertConfig, CharacterBertModel
from tandem.contrib.characters.options import (
    SPECIAL_TOKENS,
    CharacterEncoderParams,
    Imitation,
)
from tandem.contrib.characters.words import WordTokenizer, spell, to_ragged
from tandem.errors import UserError
from tandem.models.device import device, make_deterministic, use_workers
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.tokens import fill_words
from tandem.store.job import Job, writing

_REPLACED = "embeddings.word_embeddings."


def run(job: Job[CharacterEncoderParams]) -> None:
    """Write the encoder with its tokenizer as a Hugging Face folder `hf/`."""
    params = job.params
    use_workers(job.execution.workers)
    folder = job.inputs["start"].folder / "hf"
    start = load_encoder(folder)
    if start.config.model_type != "bert":
        raise UserError(
            f"encoders.{job.key.rpartition('-')[0]}.start: {job.inputs['start'].key} is of the family "
            f"{start.config.model_type}; allowed: bert"
        )
    tokenizer = make_tokenizer(params.lowercase)
    torch.manual_seed(params.imitation.seed or 0)
    model = replace_input(start, params)
    words, vectors = find_whole_words(start, load_tokenizer(folder), WordTokenizer(tokenizer))
    error = imitate(model, words, vectors, params.imitation, f"{job.kind} {job.key}")
    if error is not None and not math.isfinite(error):
        lr = f"encoders.{job.key.rpartition('-')[0]}.imitation.lr is {params.imitation.lr:g}"
        raise UserError(
            f"{lr}, by which the input learns no numbers (its error is {error}); lower it"
        )
    with writing(job) as draft:
        model.save_pretrained(draft.folder / "hf")
        tokenizer.save_pretrained(draft.folder / "hf")
        draft.facts |= {"words": len(words), "error": error, "device": device().type}


def make_tokenizer(lowercase: bool) -> Any:
    """Return a transformers tokenizer that knows only special tokens and splits as BERT's BasicTokenizer does."""
    ids = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    names = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def replace_input(start: Any, params: CharacterEncoderParams) -> CharacterBertModel:
    """Return an encoder with a new input and all weights of `start` except its vectors of word pieces."""
    sizes = start.config.to_dict()
    for name in ("model_type", "architectures", "transformers_version", "dtype"):
        sizes.pop(name, None)
    sizes |= {
        "vocab_size": len(SPECIAL_TOKENS),
        "character_size": params.character_size,
        "filters": [list(each) for each in params.filters],
        "highway_layers": params.highway_layers,
    }
    model = CharacterBertModel(CharacterBertConfig(**sizes))
    taken = {
        name: weight
        for name, weight in start.state_dict().items()
        if not name.startswith(_REPLACED)
    }
    model.load_state_dict(taken, strict=False)
    model.embeddings.word_embeddings.draw()
    return model


def find_whole_words(start: Any, pieces: Any, splitter: WordTokenizer) -> tuple[list[str], Tensor]:
    """Return the entries of a vocabulary that can occur as words in texts, by id, and their vectors.

    Pieces that continue a word, special tokens, and entries that split into other words are left out.
    """
    special = {*pieces.all_special_tokens}
    vocabulary = sorted(pieces.get_vocab().items(), key=lambda entry: entry[1])
    chosen = [
        (word, number)
        for word, number in vocabulary
        if word not in special and splitter.split(word) == [word]
    ]
    rows = torch.tensor([number for _, number in chosen], dtype=torch.long)
    vectors = start.get_input_embeddings().weight.detach()[rows]
    return [word for word, _ in chosen], vectors


def imitate(
    model: CharacterBertModel, words: Sequence[str], vectors: Tensor, how: Imitation, label: str
) -> float | None:
    """Train an encoder's input to reproduce vectors of words, by their mean squared error.

    Returns:
        The error of the last tenth of the steps, as a share of the vectors' variance; None without steps or words.
    """
    if not how.steps or not words:
        return None
    make_deterministic()
    characters = torch.from_numpy(fill_words(to_ragged(map(spell, words), "int64")))
    variance = float((vectors - vectors.mean(0)).square().mean())
    network: nn.Module = model.embeddings.word_embeddings
    network.to(device()).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=how.lr)
    draws = np.random.default_rng(how.seed or 0)
    last: list[Tensor] = []
    with Progress(label, how.steps, "steps") as progress:
        for step in range(how.steps):
            rows = torch.from_numpy(draws.integers(len(words), size=how.words_per_batch))
            made = network(characters[rows].to(device()))
            loss = (made - vectors[rows].to(device())).square().mean()
            for group in optimizer.param_groups:
                group["lr"] = how.lr * (1 - step / how.steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step >= how.steps - max(1, how.steps // 10):
                last.append(loss.detach())
            progress.add(1)
    network.cpu().eval()
    return round(float(torch.stack(last).mean()) / variance, 4)
