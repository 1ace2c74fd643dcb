"""QLoRA: weights that stay are kept in four bits, adapters learn beside them, and what is saved is a plain model."""

import numpy as np
import pytest
import torch
from comparing import interrupt
from safetensors.torch import load_file
from test_lora import LINEAR, numbers

from tandem.cluster.faults import explain_fault
from tandem.config.training import Lora
from tandem.contrib.adapters.low_rank import add_lora, merge_lora
from tandem.errors import UserError
from tandem.models.hub import load_encoder
from tandem.store.files import sha256
from tandem.training import stage
from tandem.training.checkpoints import State, list_learning
from tandem.training.forward import Budget
from tandem.training.lists import Positives
from tandem.training.loop import TrainingLoop

QLORA = {"rank": 2, "alpha": 6, "dropout": 0.1, "targets": None, "bits": 4}
IDS = torch.arange(5, 17)[None]
# Of NF4, in the paper's Appendix E: what a weight may be, in units of the largest of its block.
LEVELS = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


@pytest.fixture
def qlora_job(quick_job):
    """`qlora_job(objective, name, train, **execution)`: two towers or a cross-encoder with QLoRA."""
    return lambda *words, **options: quick_job(
        *words, shape={"lora": QLORA, "shared": False}, **options
    )


def adapt(encoder, **options):
    """The tiny encoder with adapters."""
    model = load_encoder(encoder.folder / "hf").eval()
    add_lora(model, Lora(**QLORA | options))
    return model.eval()


def test_a_weight_that_stays_is_one_of_sixteen_levels_times_the_largest_of_its_block(encoder):
    plain = load_encoder(encoder.folder / "hf").encoder.layer[0].attention.self.query.weight
    stored = merge_lora(adapt(encoder)).encoder.layer[0].attention.self.query.weight
    blocks, kept = plain.detach().reshape(-1, 64), stored.detach().reshape(-1, 64)
    largest = blocks.abs().amax(1, keepdim=True)
    levels = torch.tensor(LEVELS)
    nearest = (blocks / largest).unsqueeze(-1).sub(levels).abs().argmin(-1)
    # the blocks' largest numbers are rounded to eight bits themselves
    assert torch.allclose(kept, levels[nearest] * largest, atol=0.01 * float(largest.max()))
    assert not torch.allclose(kept, blocks, atol=0.01 * float(largest.max()))


def list_four_bit_layers(model):
    # imports bitsandbytes: two seconds, which who only collects tests need not wait
    from tandem.contrib.adapters.four_bits import FourBitLinear

    return [layer for layer in model.modules() if isinstance(layer, FourBitLinear)]


def test_linear_layers_alone_are_stored_in_four_bits_and_only_adapters_learn(encoder):
    model = adapt(encoder)
    stored = list_four_bit_layers(model)
    plain = load_encoder(encoder.folder / "hf").encoder
    linear = [layer for layer in plain.modules() if isinstance(layer, torch.nn.Linear)]
    assert len(stored) == len(linear) == 2 * LINEAR
    # two weights a byte
    assert sum(layer.weight.numel() for layer in stored) == sum(
        layer.weight.numel() // 2 for layer in linear
    )
    learning = [name for name, weights in model.named_parameters() if weights.requires_grad]
    assert len(learning) == 2 * 2 * LINEAR
    assert all(".lora_" in name for name in learning)


def test_adapters_learn_what_they_would_beside_the_plain_weights_that_are_computed_with(encoder):
    quantized = adapt(encoder, dropout=0.0)
    plain = merge_lora(quantized).requires_grad_(True)
    torch.manual_seed(5)
    add_lora(plain, Lora(**QLORA | {"bits": None, "dropout": 0.0}))
    ours, theirs = (dict(model.named_parameters()) for model in (quantized, plain))
    adapters = [name for name in ours if ".lora_" in name]
    with torch.no_grad():
        for name in adapters:
            theirs[name].copy_(ours[name].normal_(std=0.1))
    for model in (quantized, plain):
        # a validation in between, which computes without gradients
        with torch.no_grad():
            model(IDS)
        model.train()
        model.embeddings.dropout.p = 0.0
        model(IDS).last_hidden_state.square().sum().backward()
    for name in adapters:
        assert torch.allclose(ours[name].grad, theirs[name].grad, rtol=1e-4, atol=1e-4), name
        assert ours[name].grad.abs().sum() > 0


def test_layers_without_an_adapter_are_stored_and_restored_too(encoder):
    model = adapt(encoder, targets=["query"])
    assert len(list_four_bit_layers(model)) == 2 * LINEAR
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if ".lora_" in name:
                weights.normal_(std=0.1)
        merged = merge_lora(model)
        assert torch.allclose(
            merged(IDS).last_hidden_state, model(IDS).last_hidden_state, atol=1e-5
        )
    assert list_four_bit_layers(merged) == []
    assert merged.state_dict().keys() == load_encoder(encoder.folder / "hf").state_dict().keys()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("objective", ["dual", "cross", "joint"])
def test_a_trained_model_is_saved_plain_and_scores_as_it_did(
    objective, precision, qlora_job, tokens
):
    job = qlora_job(objective, "trained", {"precision": precision})
    learner = stage.build_ranker(job, Positives(np.array([0]), np.array([2])), Budget())
    drawn = stage.read_training_lists(job)
    training = TrainingLoop(job, job.params.train, learner, drawn, None)
    training.run()
    assert all(
        ".lora_" in name or name.startswith("cross.head") for name in list_learning(learner.models)
    )
    stage.write_model(job, training, State(4, [(4, "loss", 1.0)]), {}, [])
    unmerged, loaded = numbers(job, learner, tokens), numbers(job, None, tokens)
    for name, values in unmerged.items():
        scale = float(values.abs().max())
        assert torch.allclose(values, loaded[name], atol=1e-5 * max(1.0, scale)), name
    for file in job.out.rglob("model.safetensors"):
        assert {weights.dtype for weights in load_file(file).values()} == {torch.float32}


def test_interrupted_it_ends_with_the_same_bytes(qlora_job, monkeypatch):
    def files(job):
        return {str(p.relative_to(job.out)): sha256(p) for p in job.out.rglob("*.safetensors")}

    whole = qlora_job("dual", "whole")
    stage.run(whole)
    job = qlora_job("dual", "broken", checkpoint_seconds=0)
    interrupt(lambda: stage.run(job), 2, monkeypatch)
    stage.run(qlora_job("dual", "broken"))
    assert files(job) == files(whole)


def test_an_encoder_without_layers_has_nothing_to_store(encoder):
    model = load_encoder(encoder.folder / "hf")
    for name in ("query", "key", "value"):
        for layer in model.encoder.layer:
            layer.attention.self.set_submodule(name, torch.nn.Identity())
    model.encoder.layer = torch.nn.ModuleList()
    model.pooler = None
    with pytest.raises(UserError, match="no linear layer"):
        add_lora(model, Lora(**QLORA))


def test_a_missing_package_is_named_with_the_extra_that_brings_it():
    fault = explain_fault(
        ModuleNotFoundError("No module named 'bitsandbytes'", name="bitsandbytes")
    )
    assert "tandem-retrieval[qlora]" in fault
