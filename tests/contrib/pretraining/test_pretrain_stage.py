"""Stage `pretrain`: killed and resumed, what it writes, what can be made of it, and that it learns."""

import numpy as np
import pytest
import torch
from comparing import interrupt
from several_processes import kill_and_resume, read_curve
from transformers import AutoModelForMaskedLM

from tandem.contrib.pretraining.pretrain import build, passages_alone
from tandem.contrib.pretraining.pretrain import run as pretrain
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.stages.training import ModelParams
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.training.distributed import World
from tandem.training.forward import Budget

SHAPE = {"layers": 1, "hidden": 32, "heads": 4, "feed_forward": 64, "positions": 64}
TRAIN = {
    "passages_per_batch": 16, "epochs": 1.0, "steps": 5, "lr": 1e-3, "optimizer": "adamw", "weight_decay": 0.01,
    "warmup": 0.2, "schedule": "linear", "clip": 1.0, "dropout": 0.1, "precision": "fp32", "seed": 5,
}  # fmt: skip
SPANS = {"crop_shortest": 0.2, "crop_longest": 0.6}
OBJECTIVES = {
    "crop": SPANS,
    "moco": {**SPANS, "queue": 24, "momentum": 0.5},
    "mlm": {"mask_probability": 0.15},
    "retromae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5},
    "cocondenser": {**SPANS, "mask_probability": 0.15, "head_layers": 1, "skip_from": None},
    "condenser": {"mask_probability": 0.15, "head_layers": 1, "skip_from": None},
    "tsdae": {"deletion_probability": 0.6},
    "ict": {**SPANS, "keep_probability": 0.3},
    "cot_mae": {
        **SPANS,
        "mask_probability": 0.3,
        "decoder_mask_probability": 0.45,
        "decoder_layers": 1,
    },
    "dup_mae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5, "bag_weight": 1.0},
    "lex_mae": {"mask_probability": 0.3, "decoder_mask_probability": 0.5, "decoder_layers": 1},
}
VECTOR = {"pooling": "mean", "normalize": True, "temperature": 0.05}


@pytest.fixture(scope="module")
def vocabularies(make_job, dataset, tmp_path_factory):
    """`vocabularies(layers)`: an untrained encoder for the tiny corpus, and the corpus' token ids."""
    from tandem.contrib.pretraining.vocabulary import run as vocabulary
    from tandem.models import tokenisation

    artifacts = {}

    def make(layers):
        if layers not in artifacts:
            folder = tmp_path_factory.mktemp(f"layers-{layers}")
            params = {"vocabulary": 300, "lowercase": True, "seed": 3, **SHAPE, "layers": layers}
            vocabulary(
                make_job("vocabulary", folder / "v-0123456789", params, {"dataset": dataset})
            )
            inputs = {"dataset": dataset, "encoder": folder / "v-0123456789"}
            lengths = {"query_length": 16, "passage_length": 40}
            tokenisation.run(make_job("tokens", folder / "t-0123456789", lengths, inputs))
            artifacts[layers] = (
                open_artifact(folder / "v-0123456789"),
                open_artifact(folder / "t-0123456789"),
            )
        return artifacts[layers]

    return make


@pytest.fixture(scope="module")
def pretrain_job(make_job, vocabularies):
    """`pretrain_job(objective, out, layers, train, **execution)`."""

    def make(objective, out, layers=1, train=None, **execution):
        start, ids = vocabularies(layers)
        params = {
            "objective": objective,
            **VECTOR,
            "train": TRAIN | OBJECTIVES[objective] | (train or {}),
        }
        how = {"micro_tokens": 200, "graph_tokens": 400, "workers": 1} | execution
        return make_job("pretrain", out, params, {"start": start, "tokens": ids}, how)

    return make


@pytest.fixture(scope="module")
def undisturbed(pretrain_job, tmp_path_factory):
    """`undisturbed(objective)`: the finished artifact."""
    folder, artifacts = tmp_path_factory.mktemp("undisturbed"), {}

    def make(objective):
        if objective not in artifacts:
            pretrain(pretrain_job(objective, folder / f"{objective}-0000000000"))
            artifacts[objective] = open_artifact(folder / f"{objective}-0000000000")
        return artifacts[objective]

    return make


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_killed_at_any_step_it_ends_with_the_same_bytes(
    objective, pretrain_job, undisturbed, tmp_path, monkeypatch
):
    there = undisturbed(objective)
    for broken in (1, 4):
        out = tmp_path / f"{objective}-{broken:010d}"
        job = pretrain_job(objective, out, checkpoint_seconds=0)
        interrupt(lambda job=job: pretrain(job), broken, monkeypatch)
        assert not (out / "stage.json").exists()
        pretrain(pretrain_job(objective, out))
        assert sha256(out / "hf/model.safetensors") == sha256(there.path("hf/model.safetensors"))
        assert read_curve(out) == read_curve(there.folder)
        assert not (out / "checkpoints").exists()


def test_killed_by_the_system(pretrain_job, command, undisturbed, tmp_path, capfd):
    job = pretrain_job("retromae", tmp_path / "retromae-0123456789", checkpoint_seconds=0)
    kill_and_resume(job, ["pretrain", *command(job)], pretrain, capfd)
    there = undisturbed("retromae").path("hf/model.safetensors")
    assert sha256(job.out / "hf/model.safetensors") == sha256(there)


def test_heads_are_dropped_but_for_mlm_and_the_tokenizer_stays(undisturbed, vocabularies):
    from safetensors.numpy import load_file

    start = vocabularies(1)[0]
    before = load_file(start.path("hf/model.safetensors"))
    for objective in OBJECTIVES:
        after = load_file(undisturbed(objective).path("hf/model.safetensors"))
        if objective in ("mlm", "lex_mae"):
            assert any(name.startswith("cls.predictions.transform.") for name in after)
            after = {
                name.removeprefix("bert."): array
                for name, array in after.items()
                if name.startswith("bert.")
            }
        assert after.keys() == before.keys()
        assert any((after[name] != before[name]).any() for name in before)
    name = "hf/tokenizer.json"
    assert sha256(undisturbed("mlm").path(name)) == sha256(start.path(name))


def test_a_model_starts_from_it_and_so_does_a_further_pretraining(
    undisturbed, make_job, vocabularies, tmp_path
):
    from tandem.training.stage import start_cross, start_dual

    pretrained = undisturbed("crop")
    towers = ModelParams.model_validate(
        {"objective": "dual", "train": {}, "shared": False, **VECTOR}
    )
    assert start_dual(pretrained, towers).dimension == 32
    cross = ModelParams.model_validate({"objective": "cross", "train": {}, "pooling": "cls"})
    assert start_cross(pretrained, cross).head.in_features == 32
    params = {"objective": "mlm", **VECTOR, "train": TRAIN | OBJECTIVES["mlm"] | {"steps": 1}}
    inputs = {"start": pretrained, "tokens": vocabularies(1)[1]}
    pretrain(make_job("pretrain", tmp_path / "further-0123456789", params, inputs))
    assert open_artifact(tmp_path / "further-0123456789").upstream["start"] == str(
        pretrained.folder
    )


@pytest.fixture
def begun(make_job, vocabularies, undisturbed, tmp_path):
    """`begun(start, head)`: the objective `retromae` before its first step, from another objective's artifact."""

    def make(start, head):
        train = TRAIN | OBJECTIVES["retromae"] | {"head": head, "dropout": 0.0}
        params = {"objective": "retromae", **VECTOR, "train": train}
        inputs = {"start": undisturbed(start), "tokens": vocabularies(1)[1]}
        job = make_job("pretrain", tmp_path / f"{start}-{head}-0123456789", params, inputs)
        tokens, _ = passages_alone(Tokens.open(job.inputs["tokens"]))
        return build(job, tokens, Budget(200, 400), World()), job.inputs["start"].folder / "hf"

    return make


def test_the_head_starts_as_the_one_that_the_start_has(begun):
    """The logits are those of transformers' own masked language model."""
    objective, folder = begun("mlm", "start")
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        states = objective.encoder.eval()(ids).last_hidden_state
        embeddings = objective.encoder.get_input_embeddings().weight
        logits = objective.head.compute_logits(states, embeddings)
        assert torch.allclose(logits, whole(ids).logits, atol=1e-6)
        assert logits.std() > 0.1


@pytest.mark.parametrize(("start", "head"), [("mlm", "random"), ("crop", "start")])
def test_the_head_is_drawn_where_it_shall_be_and_where_the_start_has_none(start, head, begun):
    objective, _ = begun(start, head)
    assert (objective.head.bias == 0).all()
    assert (objective.head.norm.weight == 1).all()
    assert objective.head.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_sentence_transformers_gives_the_same_vectors(undisturbed, vocabularies):
    from sentence_transformers import SentenceTransformer

    folder, tokens = undisturbed("crop").folder / "hf", Tokens.open(vocabularies(1)[1])
    theirs = SentenceTransformer(str(folder), device="cpu").encode(["The otter is a river mammal."])
    model = DualEncoder.start(folder, **VECTOR, shared=True).eval()
    from tandem.models.hub import load_tokenizer

    ids = load_tokenizer(folder)("The otter is a river mammal.", add_special_tokens=False)[
        "input_ids"
    ]
    ours = model.encode("query", [np.array(ids)], tokens.template, "fp32").detach().numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_tokenizer_without_a_mask_token_can_only_crop(make_job, vocabularies, tmp_path):
    from tandem.contrib.pretraining.masking import Vocabulary
    from tandem.models.hub import load_tokenizer

    tokenizer = load_tokenizer(vocabularies(1)[0].folder / "hf")
    tokenizer.mask_token = None
    with pytest.raises(
        UserError,
        match="encoder mine: its tokenizer has no mask token; pre-train it with objective crop",
    ):
        Vocabulary.of(tokenizer, "mine")


TOPICS, WORDS = 20, 12


def topic_word(topic, word):
    """A word of a topic: three letters, no two alike."""
    number = topic * WORDS + word
    return "".join(chr(97 + number // 26**place % 26) for place in range(3))


@pytest.fixture(scope="module")
def topical(make_dataset, tmp_path_factory):
    """400 passages, each of six words of one of twenty topics; which words share a topic can be learned alone."""
    draw = np.random.RandomState(1)
    rows = [
        (f"{i}", "", " ".join(topic_word(i % TOPICS, w) for w in draw.permutation(WORDS)[:6]))
        for i in range(400)
    ]
    return make_dataset(tmp_path_factory.mktemp("topical") / "topical-0000000001", rows)


@pytest.mark.parametrize("layers", [0, 1])
def test_crops_teach_what_belongs_together(layers, topical, make_job, tmp_path):
    """RR@10 of a word's topic among the passages without the word, before and after."""
    from tandem.contrib.pretraining.vocabulary import run as vocabulary
    from tandem.models import tokenisation
    from tandem.models.hub import load_tokenizer

    params = {"vocabulary": 400, "lowercase": True, "seed": 3, **SHAPE, "layers": layers}
    vocabulary(make_job("vocabulary", tmp_path / "v-0123456789", params, {"dataset": topical}))
    inputs = {"dataset": topical, "encoder": tmp_path / "v-0123456789"}
    tokenisation.run(
        make_job(
            "tokens", tmp_path / "t-0123456789", {"query_length": 8, "passage_length": 40}, inputs
        )
    )
    options = {"steps": 60, "lr": 1e-2, "dropout": 0.0, "passages_per_batch": 32, **SPANS}
    inputs = {"start": tmp_path / "v-0123456789", "tokens": tmp_path / "t-0123456789"}
    params = {"objective": "crop", **VECTOR, "train": TRAIN | options}
    pretrain(make_job("pretrain", tmp_path / "p-0123456789", params, inputs, {"workers": 1}))
    texts = Tokens.open(open_artifact(tmp_path / "t-0123456789"))
    tokenizer = load_tokenizer(tmp_path / "v-0123456789/hf")
    words = [
        np.array(tokenizer.convert_tokens_to_ids([topic_word(*divmod(n, WORDS))]))
        for n in range(TOPICS * WORDS)
    ]
    assert tokenizer.unk_token_id not in np.concatenate(words)

    def rank(name):
        """RR@10 of an encoder."""
        model = DualEncoder.start(tmp_path / name / "hf", **VECTOR, shared=True).eval()
        queries, passages = (
            model.encode("query", some, texts.template, "fp32").detach().numpy()
            for some in (words, texts.passages)
        )
        reciprocals = []
        for number, scores in enumerate(queries @ passages.T):
            has = [words[number][0] in texts.passages[row] for row in range(400)]
            top = np.argsort(-np.where(has, -np.inf, scores), kind="stable")[:10]
            hits = top % TOPICS == number // WORDS
            reciprocals.append(1 / (hits.argmax() + 1) if hits.any() else 0.0)
        return np.mean(reciprocals)

    before, after = rank("v-0123456789"), rank("p-0123456789")
    assert before < 0.2, before  # chance: .05 a rank
    assert after > 0.8, after


def test_losses_fall(undisturbed, pretrain_job, tmp_path):
    for objective in ("mlm", "retromae", "cocondenser"):
        job = pretrain_job(
            objective,
            tmp_path / f"{objective}-0123456789",
            1,
            {"steps": 40, "lr": 5e-3, "dropout": 0.0},
        )
        pretrain(job)
        losses = [row["value"] for row in read_curve(job.out) if row["name"] == "loss"]
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5]), objective
