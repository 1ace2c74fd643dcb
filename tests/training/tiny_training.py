"""Tiny texts, models and objectives out of NumPy's frozen generator, for tests and the processes they start."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    T5Config,
    T5ForConditionalGeneration,
)

from tandem.config.losses import OWN_LOSSES
from tandem.config.references import parameters_of
from tandem.config.representations import REPRESENTATIONS, representation
from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.models.cross import CrossEncoder
from tandem.models.device import device
from tandem.models.dual import SIDES, DualEncoder
from tandem.models.learning import freeze_layers, set_dropout
from tandem.models.pair_prompts import Around, PairOptions, reading_head
from tandem.models.ragged import Ragged
from tandem.models.saving import TOKEN_VECTORS, Dense, DualShape
from tandem.models.tokens import Template, Tokens
from tandem.store.job import load
from tandem.training.distributed import SINGLE_PROCESS
from tandem.training.forward import Budget
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import Cross, Joint

WORDS = 200
TRAINING = dict.fromkeys(
    (
        "dual",
        "multi",
        "me_bert",
        "coil",
        "sparse",
        "sparterm",
        "gated",
        "unicoil",
        "uhd",
        "spade",
        "poly",
    ),
    parameters_of(DualTrain),
)
TRAINING |= dict.fromkeys(
    ("cross", "mono_t5", "rank_t5", "rank_t5_encoder", "duo_bert", "duo_t5"),
    parameters_of(CrossTrain),
)
TRAINING["joint"] = JointTrain
TRAIN = {"precision": "fp32", "in_batch": False, "loss": "listwise", "supervision": "listwise"}
TRAIN |= {"semantics": "paper", "teacher": "dynamic"}
# Query 3 knows a passage of list 0 and list 1 as relevant, list 2 is short.
BATCH = Batch(
    np.arange(4), np.array([[2, 5, 8, 11], [5, 2, 14, 17], [8, 20, -1, -1], [11, 23, 26, 2]])
)
# Queries 7 and on stand for broken copies of the first ones, two of each.
BROKEN = np.array([[row + 7, row + 12] for row in range(8)])
POSITIVES = Positives(np.array([0, 1, 2, 3, 3]), np.array([2, 5, 8, 11, 5]))


def texts():
    """Random token ids: 60 passages of 4 to 20 and 20 queries of 3 to 8."""
    rng = np.random.RandomState(1)

    def ragged(rows, shortest, longest):
        offsets = np.r_[0, rng.randint(shortest, longest + 1, rows)].cumsum()
        return Ragged(rng.randint(4, WORDS, offsets[-1]), offsets)

    return Tokens(
        ragged(60, 4, 20),
        ragged(20, 3, 8),
        Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0),
    )


def bert_config():
    """The sizes of a BERT of 2 layers and 32 dimensions."""
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    return BertConfig(vocab_size=WORDS, max_position_embeddings=64, **shape)


def bert():
    """A tiny BERT; `objective` sets its weights."""
    with torch.random.fork_rng():
        return BertModel(bert_config(), add_pooling_layer=False)


def sparse(kind="sparse"):
    """A sparse encoder over two tiny BERTs with heads; `objective` sets their weights."""
    with torch.random.fork_rng():
        towers = [BertForMaskedLM(bert_config()) for _ in ("query", "passage")]
        return representation[kind](*towers, shape(REPRESENTATIONS[kind]()))


def gated():
    """SparTerm over two tiny BERTs with heads, and a third that is its gate."""
    with torch.random.fork_rng():
        towers = [BertForMaskedLM(bert_config()) for _ in ("query", "passage", "gate")]
    options = REPRESENTATIONS["sparterm"](gate="learned")
    model = representation["sparterm"](*towers[:2], shape(options))
    model.towers["gate"] = towers[2]
    model.learn_gate(False)
    return model


def shape(options, *more):
    """The shape of a representation that is not scaled to length 1, by its options."""
    return DualShape(False, *(more or ("max", False, 1.0)), representation=options.model_dump())


def unicoil():
    """uniCOIL over two tiny BERTs; `objective` sets their weights."""
    return with_layers(
        representation["unicoil"](bert(), bert(), shape(REPRESENTATIONS["unicoil"]()))
    )


def train_params(objective, **train):
    """Training parameters of an objective, of which it takes those that it knows."""
    params = TRAINING[objective]
    return params.model_validate(
        {key: value for key, value in (TRAIN | train).items() if key in params.model_fields}
    )


def coil():
    """COIL over two tiny BERTs: vectors of 8 numbers for tokens, of 12, in two pieces, for texts."""
    options = REPRESENTATIONS["coil"](dim=8, cls_dim=12)
    return with_layers(representation["coil"](bert(), bert(), shape(options)))


def uhd():
    """UHD-BERT over two tiny BERTs: 300 dimensions of each of two layers, of which a token keeps 7."""
    options = REPRESENTATIONS["uhd"](width=300, winners=7, layers=(1, 2))
    return with_layers(representation["uhd"](bert(), bert(), shape(options)))


def poly():
    """A poly-encoder of five codes over two tiny BERTs."""
    options = REPRESENTATIONS["poly"](codes=5)
    return with_layers(representation["poly"](bert(), bert(), shape(options)))


def spade():
    """SpaDE over two tiny BERTs, one of them with a head."""
    queries = pytest.importorskip("tandem.contrib.term_weights.static_queries")
    static = queries.StaticQueries(torch.ones(WORDS))
    options = shape(REPRESENTATIONS["spade"]())
    model = with_layers(representation["spade"](static, bert(), options))
    model.dense["query"] = nn.ModuleList()
    with torch.random.fork_rng():
        model.towers["expansion"] = BertForMaskedLM(bert_config())
    return model


def with_layers(model):
    """The model with layers of its own on each side."""
    with torch.random.fork_rng():
        model.dense.update({side: nn.ModuleList(model.new_layers(32)) for side in SIDES})
    return model


class Vocabulary:
    """What of a tokenizer a model of words asks: "true" and "false" are the ids 50 and 60."""

    unk_token_id = 1

    def __call__(self, word, add_special_tokens):
        """The ids of a word."""
        return {"input_ids": [{"true": 50, "false": 60}[word]]}


def writing(words, pooling="decoder", passages=1):
    """A cross-encoder over a tiny T5 that reads a prompt; `objective` sets its weights."""
    size = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
    config = T5Config(
        vocab_size=WORDS, decoder_start_token_id=0, pad_token_id=0, eos_token_id=3, **size
    )
    with torch.random.fork_rng():
        model = T5ForConditionalGeneration(config)
    around = Around((71, 72), ((73, 72), (75, 72))[:passages], (74, 72, 3))
    options = PairOptions(passages=passages)
    if not words:
        return CrossEncoder(model.encoder, pooling, None, options, around)
    head = reading_head[pooling](model, Vocabulary(), words)
    return CrossEncoder(model, pooling, head, options, around)


def late_interaction(shared, **options):
    """Vectors of 8 numbers for tokens; id 4 is [MASK], ids 5 to 30 are punctuation."""
    query = bert()
    options = REPRESENTATIONS["multi"](**{"dim": 8, "query_tokens": 12} | options)
    late = representation["multi"]
    model = late(query, query if shared else bert(), shape(options, "cls", True, 1.0))
    layers = [Dense(nn.Linear(32, 8, bias=False), nn.Identity(), TOKEN_VECTORS) for _ in range(2)]
    model.dense.update(
        {
            "query": nn.ModuleList(layers[:1]),
            "passage": nn.ModuleList(layers[:1] if shared else layers[1:]),
        }
    )
    model.know(mask_id=4, skipped=list(range(5, 31)))
    return model


def weigh(model, seed, dtype):
    """Give a model's parameters weights by their names."""
    rng = np.random.RandomState(seed)
    for path, parameter in sorted(model.named_parameters()):
        centre = 1.0 if path.endswith("LayerNorm.weight") else 0.0
        parameter.data = torch.from_numpy(rng.normal(centre, 0.2, tuple(parameter.shape))).to(dtype)
    model.to(dtype)


def teacher_of(params, opened, budget, dtype):
    """Late interaction that teaches in batch, if the parameters have a teacher."""
    if params.distil is None or params.distil.in_batch is None:
        return None
    model = late_interaction(shared=True)
    weigh(model, 3, dtype)
    model.to(device())
    teacher = load("contrib.distillation.in_batch:Teacher")
    return teacher(model, opened, params.distil.in_batch, params.precision, budget)


def objective(
    name,
    budget=None,
    dtype=torch.float32,
    dropout=0.0,
    shared=False,
    world=SINGLE_PROCESS,
    **train,
):
    """One of `TRAINING` over tiny BERTs, with the same weights at each call."""
    params, budget, opened = train_params(name, **train), budget or Budget(), texts()

    def dual():
        query = bert()
        return DualEncoder(
            query, query if shared else bert(), DualShape(shared, "mean", False, 1.0)
        )

    first = {"query_tokens": None, "query_vectors": 1, "passage_vectors": 3}
    duals = {
        "dual": dual,
        "multi": lambda: late_interaction(shared),
        "me_bert": lambda: late_interaction(shared, **first),
        "coil": coil,
        "sparse": sparse,
        "sparterm": lambda: sparse("sparterm"),
        "gated": gated,
        "unicoil": unicoil,
        "uhd": uhd,
        "spade": spade,
        "poly": poly,
    }
    crosses = {
        "cross": lambda: CrossEncoder(bert(), "mean"),
        "mono_t5": lambda: writing(["true", "false"]),
        "rank_t5": lambda: writing(["true"]),
        "rank_t5_encoder": lambda: writing([], "cls"),
        "duo_bert": lambda: CrossEncoder(bert(), "mean", None, PairOptions(passages=2)),
        "duo_t5": lambda: writing(["true", "false"], passages=2),
    }
    own = OWN_LOSSES.get(getattr(params, "loss", ""))
    if own:
        learner = load(own.objective)(duals[name](), opened, params, POSITIVES, budget, world)
    elif name in duals:
        teacher = teacher_of(params, opened, budget, dtype)
        model = duals[name]()
        learn = load(model.objective)
        broken = None
        if params.self_teaching:
            broken = load("contrib.robustness.self_teaching:BrokenQueries")(BROKEN)
        learner = learn(model, opened, params, POSITIVES, budget, world, teacher, broken)
    elif name in crosses:
        learn_lists = Cross
        if name.startswith("duo"):
            learn_lists = load("contrib.comparisons.pair_objective:ComparisonObjective")
        learner = learn_lists(crosses[name](), opened, params, POSITIVES, budget, world)
    else:
        learner = Joint(
            dual(), CrossEncoder(bert(), "mean"), opened, opened, params, POSITIVES, budget, world
        )
    weigh(learner.models, 2, dtype)
    learner.models.to(device())
    set_dropout(learner.models, dropout)
    if params.freeze_layers:
        freeze_layers(learner.models, params.freeze_layers)
    learner.models.train()
    return learner
