"""LoRA: what learns, what stays, what a checkpoint holds, and that merging changes no score."""

import numpy as np
import pytest
import torch
from comparing import interrupt
from safetensors.torch import load_file

from tandem import registry
from tandem.config.training import Lora
from tandem.contrib.adapters.low_rank import add_lora, merge_lora
from tandem.errors import UserError
from tandem.extras.training_operations import count_layer_weights, count_learning_operations
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder, load_tokenizer, save_encoder
from tandem.models.tokens import Tokens
from tandem.store.files import sha256
from tandem.training import stage
from tandem.training.checkpoints import State, list_learning
from tandem.training.forward import Budget
from tandem.training.lists import Positives
from tandem.training.loop import TrainingLoop

LORA = {"rank": 2, "alpha": 6, "dropout": 0.1, "targets": None}
LINEAR = 6  # linear layers in one of the tiny encoder's two layers
TOUCHED = {
    "dual": ("dual/query", "dual/passage"),
    "cross": ("cross",),
    "joint": ("dual/query", "dual/passage", "cross"),
}


@pytest.fixture
def lora_job(quick_job):
    """`lora_job(objective, name, train, **execution)`: two towers or a cross-encoder with LoRA."""
    return lambda *words, **options: quick_job(
        *words, shape={"lora": LORA, "shared": False}, **options
    )


def numbers(job, objective, tokens):
    """What the models of an objective, or of a finished artifact's folder, give for some texts."""
    opened, outputs = Tokens.open(tokens), {}
    if objective is None:
        parts = {"dual": DualEncoder, "cross": CrossEncoder}
        models = {
            name: kind.load(job.out / name)
            for name, kind in parts.items()
            if (job.out / name).is_dir()
        }
    else:
        models = objective.models
    texts = [[side[i] for i in range(8)] for side in (opened.queries, opened.passages)]
    for name, model in models.items():
        model.eval()
        with torch.no_grad():
            if name == "cross":
                outputs[name] = model(*texts, opened.template, "fp32")
            else:
                outputs[name] = torch.stack([model.encode("query", texts[0], opened.template, "fp32"),
                                             model.encode("passage", texts[1], opened.template, "fp32")])  # fmt: skip
    return outputs


def test_an_adapter_starts_as_the_encoder_itself_and_merges_exactly(encoder):
    plain, adapted = (load_encoder(encoder.folder / "hf").double().eval() for _ in range(2))
    add_lora(adapted, Lora(**LORA))
    learning = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert len(learning) == 2 * 2 * LINEAR
    assert all(".lora_A." in name or ".lora_B." in name for name in learning)
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        adapted = adapted.double().eval()
        assert torch.allclose(
            plain(ids).last_hidden_state, adapted(ids).last_hidden_state, atol=1e-12
        )
        for parameter in learning.values():
            parameter.normal_(std=0.1)
        together = merge_lora(adapted)
        assert torch.allclose(
            together(ids).last_hidden_state, adapted(ids).last_hidden_state, atol=1e-12
        )
        assert not torch.allclose(
            plain(ids).last_hidden_state, together(ids).last_hidden_state, atol=1e-3
        )
        # W + (alpha / rank) B A, by hand
        layer = adapted.encoder.layer[1].attention.self.query
        by_hand = (
            layer.base_layer.weight
            + 6 / 2 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        )
        assert torch.allclose(
            together.encoder.layer[1].attention.self.query.weight, by_hand, atol=1e-12
        )
    assert together.state_dict().keys() == plain.state_dict().keys()


def test_weights_beside_adapters_cost_four_operations_of_six(encoder):
    model = load_encoder(encoder.folder / "hf")
    whole = count_layer_weights(model)
    add_lora(model, Lora(**LORA))
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    # no gradient goes through the first product, below which nothing learns
    first = model.encoder.layer[0].attention.self.query.base_layer
    below = sum(p.numel() for p in first.parameters())
    expected = 6 * adapters + 4 * (whole - below) + 2 * below
    assert count_learning_operations(model) == expected


def test_an_encoder_without_adapters_is_saved_as_it_is_and_needs_no_code_of_theirs(
    encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(registry, "LOOKED_UP", set())
    plain, tokenizer = load_encoder(encoder.folder / "hf"), load_tokenizer(encoder.folder / "hf")
    save_encoder(plain, tokenizer, tmp_path / "plain")
    assert not registry.LOOKED_UP
    assert not (tmp_path / "plain" / "adapter").exists()
    add_lora(plain, Lora(**LORA))
    save_encoder(plain, tokenizer, tmp_path / "adapted")
    assert {"tandem.contrib.adapters.low_rank"} == registry.LOOKED_UP
    assert (tmp_path / "adapted" / "adapter" / "adapter_model.safetensors").exists()


def test_only_named_layers_get_an_adapter(encoder):
    model = load_encoder(encoder.folder / "hf")
    add_lora(model, Lora(**LORA | {"targets": ["query", "value"]}))
    learning = {
        name.split(".lora_")[0].split(".")[-1]
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    assert learning == {"query", "value"}
    with pytest.raises(
        UserError,
        match=r"lora.targets: q_proj is not a linear layer; allowed: dense, key, query, value",
    ):
        add_lora(
            load_encoder(encoder.folder / "hf"), Lora(**LORA | {"targets": ["query", "q_proj"]})
        )


@pytest.mark.parametrize("objective", ["dual", "cross", "joint"])
def test_adapters_and_the_head_learn_and_the_merged_model_scores_alike(
    objective, lora_job, tokens, encoder, lists
):
    job = lora_job(objective)
    learner = stage.build_ranker(job, Positives(np.array([0]), np.array([2])), Budget())
    before = {name: p.detach().clone() for name, p in learner.models.named_parameters()}
    drawn = stage.read_training_lists(job)
    training = TrainingLoop(job, job.params.train, learner, drawn, None)
    training.run()
    learned = {
        name for name, p in learner.models.named_parameters() if not torch.equal(p, before[name])
    }
    expected = {name for name in before if ".lora_" in name or name.startswith("cross.head")}
    assert learned == expected
    assert len(learned) == len(TOUCHED[objective]) * 2 * 2 * LINEAR + 2 * (objective != "dual")
    assert list_learning(learner.models).keys() == expected
    state = training.optimizer.state_dict()["state"]
    assert sum(moments["exp_avg"].numel() for moments in state.values()) == sum(
        before[n].numel() for n in expected
    )

    stage.write_model(job, training, State(4, [(4, "loss", 1.0)]), {}, [])
    unmerged, loaded = numbers(job, learner, tokens), numbers(job, None, tokens)
    assert unmerged.keys() == loaded.keys()
    for name, values in unmerged.items():
        scale = float(values.abs().max())
        assert torch.allclose(values, loaded[name], atol=1e-6 * max(1.0, scale)), name
    base = load_file(encoder.folder / "hf/model.safetensors")
    for folder in TOUCHED[objective]:
        whole = load_file(job.out / folder / "model.safetensors")
        # of a cross-encoder, whose encoder's weights are named bert.…
        heads = ("bert.pooler", "classifier")
        saved = {
            name.removeprefix("bert."): values
            for name, values in whole.items()
            if not name.startswith(heads)
        }
        same = {name for name in saved if torch.equal(saved[name], base[name])}
        assert {
            name
            for name in saved
            if name.endswith(("LayerNorm.weight", "bias", "embeddings.weight"))
        } <= same
        assert len(saved) - len(same) == 2 * LINEAR


def test_peft_loads_the_adapter_onto_what_the_training_started_from(lora_job, encoder, tokens):
    from peft import PeftModel

    job = lora_job("dual")
    stage.run(job)
    saved = load_encoder(job.out / "dual/passage").eval()
    adapted = PeftModel.from_pretrained(
        load_encoder(encoder.folder / "hf"), job.out / "dual/passage/adapter"
    ).eval()
    inputs = load_tokenizer(job.out / "dual/passage")(
        "the otter floats on its back", return_tensors="pt"
    )
    with torch.inference_mode():
        ours, theirs = (model(**inputs).last_hidden_state for model in (saved, adapted))
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert (
        sum(p.stat().st_size for p in (job.out / "dual/passage/adapter").glob("*.safetensors"))
        < 20_000
    )


def test_a_static_teacher_stays_as_it_is(lora_job, encoder):
    job = lora_job("joint", train={"teacher": "static"})
    learner = stage.build_ranker(job, Positives(np.array([0]), np.array([2])), Budget())
    assert not any("lora" in name for name, _ in learner.models["cross"].named_parameters())
    assert {name.split(".")[0] for name in list_learning(learner.models)} == {"dual"}


def test_interrupted_it_ends_with_the_same_bytes(lora_job, monkeypatch):
    def files(job):
        return {str(p.relative_to(job.out)): sha256(p) for p in job.out.rglob("*.safetensors")}

    whole = lora_job("joint", "whole")
    stage.run(whole)
    assert any("adapter" in name for name in files(whole))
    for broken in (1, 3):
        job = lora_job("joint", f"broken{broken}", checkpoint_seconds=0)
        interrupt(lambda job=job: stage.run(job), broken, monkeypatch)
        (checkpoint,) = (job.out / "checkpoints").glob("step-*/weights.safetensors")
        assert all(".lora_" in name or "head" in name for name in load_file(checkpoint))
        stage.run(lora_job("joint", f"broken{broken}"))
        assert files(job) == files(whole)
