"""Stage `vocabulary`: an untrained encoder with a tokenizer learned from a corpus.

The tokenizer is BERT's (Devlin et al. 2019): control characters are removed, Chinese characters and punctuation are
separate tokens, and words are split by WordPiece. Accents are kept: BERT strips them when it lowers the case, which
damages scripts whose vowels are combining marks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertConfig, BertModel, BertTokenizer

from tandem.cluster.progress import Progress
from tandem.contrib.pretraining.options import VocabularyParams
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.store.job import Job, writing

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INNER = "##"  # begins a piece that continues a word
LEAST = 2  # a character or a pair of pieces that occurs less often does not become a piece
Texts = Callable[[], Iterator[str]]


def pieces(texts: Texts, size: int, lowercase: bool) -> list[str]:
    """Learn WordPiece from texts; return the pieces in the order of their ids, the same in every run.

    The library numbers the characters inside words in the arbitrary order of a hash map, and breaks ties of counts by
    these numbers. So a first pass counts the characters and finds those inside words; the second pass learns with all
    of them numbered beforehand.

    Args:
        texts: yields the texts anew at each call; they are not held in memory.
        size: number of pieces, special tokens included; a small corpus has fewer. At most half are characters.
    """
    normal, seen = BertNormalizer(lowercase=lowercase, strip_accents=False), Counter[str]()

    def counted() -> Iterator[str]:
        for text in texts():
            seen.update(normal.normalize_str(text))
            yield text

    inside = {piece for piece in _learn(counted(), normal, 0, [], None) if piece.startswith(INNER)}
    ranked = sorted(
        (-count, letter)
        for letter, count in seen.items()
        if count >= LEAST and not letter.isspace()
    )
    alphabet = sorted(letter for _, letter in ranked[: (size - len(SPECIAL)) // 2])
    return _learn(
        texts(),
        normal,
        size,
        [INNER + letter for letter in alphabet if INNER + letter in inside],
        alphabet,
    )


def _learn(
    texts: Iterable[str], normal: Any, size: int, inner: list[str], alphabet: list[str] | None
) -> list[str]:
    """Run the library's trainer once; return the pieces by id, special tokens and `inner` first."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normal, BertPreTokenizer()
    options: dict[str, Any] = {
        "vocab_size": size,
        "min_frequency": LEAST,
        "special_tokens": [*SPECIAL, *inner],
    }
    if alphabet is not None:
        options |= {"initial_alphabet": alphabet, "limit_alphabet": len(alphabet)}
    tokenizer.train_from_iterator(texts, WordPieceTrainer(**options, show_progress=False))
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def untrained(params: VocabularyParams, vocabulary: int) -> Any:
    """Return a BERT with random weights; without layers, it is close to a bag of word vectors.

    Without layers, a layer norm would give every word's vector the same length, so that their mean could not weigh
    words: a large epsilon makes it nearly linear. Position and segment vectors then start at zero.
    """
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=params.hidden,
        num_hidden_layers=params.layers,
        num_attention_heads=params.heads,
        intermediate_size=params.feed_forward,
        max_position_embeddings=params.positions,
        pad_token_id=SPECIAL.index("[PAD]"),
        layer_norm_eps=1e-12 if params.layers else 1.0,
    )
    torch.manual_seed(params.seed)
    model = BertModel(config, add_pooling_layer=False)
    if not params.layers:
        for vectors in (
            model.embeddings.position_embeddings,
            model.embeddings.token_type_embeddings,
        ):
            torch.nn.init.zeros_(vectors.weight)
    return model


def run(job: Job[VocabularyParams]) -> None:
    """Learn the tokenizer, draw the weights, write both as a Hugging Face folder `hf/`."""
    collection, params, passes = (
        Collection(job.inputs["dataset"]),
        job.params,
        iter(("characters", "pieces")),
    )

    def texts() -> Iterator[str]:
        """Yield all passages, title and text; each pass over them has a line of progress."""
        with Progress(
            f"vocabulary {job.key} · {next(passes)}", collection.passages, "passages"
        ) as progress:
            for batch in collection.batches(columns=("title", "text")):
                yield from (
                    join_contents(*row)
                    for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
                )
                progress.add(batch.num_rows)

    learned = pieces(texts, params.vocabulary, params.lowercase)
    if len(learned) <= len(SPECIAL):
        raise UserError(
            f"{job.inputs['dataset'].folder}: its passages hold no character twice, too little for a vocabulary"
        )
    numbered = {piece: number for number, piece in enumerate(learned)}
    tokenizer = BertTokenizer(vocab=numbered, do_lower_case=params.lowercase, strip_accents=False)
    with writing(job) as draft:
        untrained(params, len(learned)).save_pretrained(draft.folder / "hf")
        tokenizer.save_pretrained(draft.folder / "hf")
        draft.facts |= {"vocabulary": len(learned), "passages": collection.passages}
