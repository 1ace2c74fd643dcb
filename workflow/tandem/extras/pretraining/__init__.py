"""Stages `vocabulary`, an untrained encoder with a tokenizer learned from a corpus, and `pretrain`, which trains one.

The tokenizer is BERT's (Devlin et al. 2019): controls cleaned, Chinese characters stand alone, punctuation splits,
WordPiece below. Accents are kept: stripping them, as BERT does where it lowers the case, damages scripts whose vowels
are combining marks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertConfig, BertModel, BertTokenizer

from tandem.cluster.progress import Progress
from tandem.config.settings import Execution
from tandem.config.training import Optimisation, Train
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.extras.pretraining.condenser import Condenser
from tandem.extras.pretraining.cot_mae import CotMae
from tandem.extras.pretraining.dup_mae import DupMae
from tandem.extras.pretraining.ict import Ict
from tandem.extras.pretraining.lex_mae import LexMae
from tandem.extras.pretraining.masking import Vocabulary, masked_lm
from tandem.extras.pretraining.objectives import CoCondenser, Crop, Mlm, RetroMae
from tandem.extras.pretraining.tsdae import Tsdae
from tandem.models.acceleration import accelerate
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.hub import check_length, load_tokenizer, save_encoder
from tandem.models.lora import set_dropout
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape, describe_encoder
from tandem.models.tokens import Tokens
from tandem.stages.training import PretrainParams, VocabularyParams
from tandem.store.job import Job, writing
from tandem.training.checkpoints import Checkpoints, State
from tandem.training.distributed import World
from tandem.training.forward import MULTIPLE, Budget
from tandem.training.lists import Lists
from tandem.training.loop import TrainingLoop
from tandem.training.objectives import Objective
from tandem.training.stage import start_towers, write_log

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INNER = "##"  # begins a piece that continues a word
LEAST = 2  # a character or a pair of pieces that occurs less often is no piece
Texts = Callable[[], Iterator[str]]
PretrainJob = Job[PretrainParams]
# A stage's `objective` → its class, by the model, its tokens, `train`, the vocabulary, a budget and the processes.
OBJECTIVES: dict[str, Any] = {
    "crop": Crop,
    "mlm": Mlm,
    "retromae": RetroMae,
    "cocondenser": CoCondenser,
    "condenser": Condenser,
    "tsdae": Tsdae,
    "ict": Ict,
    "cot_mae": CotMae,
    "dup_mae": DupMae,
    "lex_mae": LexMae,
}


def pieces(texts: Texts, size: int, lowercase: bool) -> list[str]:
    """Learn WordPiece from texts: the pieces in the order of their ids, the same in every run.

    The library numbers the characters inside words as a hash map happens to yield them, and breaks ties of counts by
    these numbers. So a first pass counts the characters and finds those inside words; the second learns with all of
    them numbered beforehand.

    Args:
        texts: yields the texts anew at each call; none is held in memory.
        size: pieces, special tokens included; fewer from a small corpus. At most half are characters.
    """
    normal, seen = BertNormalizer(lowercase=lowercase, strip_accents=False), Counter[str]()

    def counted() -> Iterator[str]:
        for text in texts():
            seen.update(normal.normalize_str(text))
            yield text

    inside = {piece for piece in _learn(counted(), normal, 0, [], None) if piece.startswith(INNER)}
    ranked = sorted((-count, letter) for letter, count in seen.items() if count >= LEAST and not letter.isspace())
    alphabet = sorted(letter for _, letter in ranked[: (size - len(SPECIAL)) // 2])
    return _learn(texts(), normal, size, [INNER + letter for letter in alphabet if INNER + letter in inside], alphabet)


def _learn(texts: Iterable[str], normal: Any, size: int, inner: list[str], alphabet: list[str] | None) -> list[str]:
    """Run the library's trainer once; return the pieces by id, special tokens and `inner` first."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normal, BertPreTokenizer()
    options: dict[str, Any] = {"vocab_size": size, "min_frequency": LEAST, "special_tokens": [*SPECIAL, *inner]}
    if alphabet is not None:
        options |= {"initial_alphabet": alphabet, "limit_alphabet": len(alphabet)}
    tokenizer.train_from_iterator(texts, WordPieceTrainer(**options, show_progress=False))
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def untrained(params: VocabularyParams, vocabulary: int) -> Any:
    """Make a BERT with random weights; without layers close to a bag of words' vectors.

    Its layer norm would give every word the same length, and a mean over them cannot weigh words: a large epsilon makes
    it nearly linear. Position and segment vectors start at zero.
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
        for vectors in (model.embeddings.position_embeddings, model.embeddings.token_type_embeddings):
            torch.nn.init.zeros_(vectors.weight)
    return model


def vocabulary(job: Job[VocabularyParams]) -> None:
    """Learn the tokenizer, draw the weights, write both as a Hugging Face folder `hf/`."""
    collection, params, passes = Collection(job.inputs["dataset"]), job.params, iter(("characters", "pieces"))

    def texts() -> Iterator[str]:
        with Progress(f"vocabulary {job.key} · {next(passes)}", collection.passages, "passages") as progress:
            for batch in collection.batches(columns=("title", "text")):
                yield from (join_contents(*row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
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


def pretrain(job: PretrainJob) -> None:
    """Train and write the encoder as a Hugging Face folder `hf/`, and `log.parquet`.

    Heads are dropped, but for those of `mlm` and `lex_mae`, which sparse encoders start from.
    """
    with World.current().joined() as world:
        use_workers(job.execution.workers)
        budget = Budget(job.execution.micro_tokens, job.execution.graph_tokens)
        tokens, lists = passages_alone(Tokens.open(job.inputs["tokens"]))
        objective = build(job, tokens, budget, world)
        train = job.params.train
        shared = {name: getattr(train, name) for name in Optimisation.model_fields}
        size = train.passages_per_batch  # a batch of passages is one of lists of one
        loop = Train.model_construct(**shared, queries_per_batch=size, list_size=1, choose="last")
        state = TrainingLoop(job, loop, objective, lists, None, world).run()
        if world.first:
            write(job, objective, state)
            Checkpoints(job.out / "checkpoints").remove()


def passages_alone(tokens: Tokens) -> tuple[Tokens, Lists]:
    """Return every passage as a list of its own: query and only passage, the query without tokens."""
    rows, nothing = np.arange(len(tokens.passages)), np.empty(0, np.int64)
    empty = Ragged(nothing, np.broadcast_to(np.int64(0), len(rows) + 1))
    lists = Lists(rows, np.arange(len(rows) + 1), np.ones(len(rows), np.int8), rows)
    return replace(tokens, queries=empty), lists


def build(job: PretrainJob, tokens: Tokens, budget: Budget, world: World) -> Objective:
    """Build the objective with its encoder on the device, before any step."""
    params, train, start = job.params, job.params.train, job.inputs["start"]
    if params.dense or params.dim:
        raise UserError(f"{job.key}: an encoder with dense or dim is not trained further here; start from another one")
    model = start_towers(start.folder / "hf", True, params, f"{job.kind} {job.key}")
    encoder: Any = model.towers["passage"]
    longest = int(np.diff(tokens.passages.offsets).max(initial=0)) + tokens.template.extra[0]
    check_length(encoder, -(-longest // MULTIPLE) * MULTIPLE, f"{job.inputs['tokens'].folder}: passage")
    torch.manual_seed(train.seed)  # heads
    kind = OBJECTIVES[params.objective]
    vocabulary = Vocabulary.of(load_tokenizer(start.folder / "hf"), start.key) if kind.hides_tokens else None
    objective: Objective = kind(model, tokens, train, vocabulary, budget, world)
    set_dropout(objective.models, train.dropout)
    objective.models.to(device())
    # what is predicted stands in a grid
    execution = Execution(attention="padded", compile="never") if kind.predicts_tokens else job.execution
    accelerate(objective.models, execution, budget.micro_tokens, train.precision, training=True)
    return objective


def write(job: PretrainJob, objective: Objective, state: State) -> None:
    """Write the finished encoder, with the tokenizer it started with."""
    model: Any = objective.models["dual"]
    folder, params = job.inputs["start"].folder / "hf", job.params

    def with_head(encoder: Any, folder: Path) -> None:
        whole = masked_lm(encoder, objective.head) if isinstance(objective, Mlm | LexMae) else encoder
        whole.save_pretrained(folder)

    with writing(job) as draft:
        save_encoder(model.towers["passage"], load_tokenizer(folder), draft.folder / "hf", with_head)
        shape = DualShape(True, params.pooling, params.normalize, params.temperature, prompts=params.prompts)
        describe_encoder(draft.folder / "hf", model.dimension, shape)
        write_log(state, draft.path("log.parquet"))
        precision = resolve_precision(params.train.precision)
        draft.facts |= {"steps": state.step, "precision": precision, "device": device().type}
