"""What a model starts from."""

import torch

from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.lora import set_dropout
from tandem.stages.training import ModelParams
from tandem.training.stage import start_cross, start_dual

TOWERS = {"shared": False, "pooling": "mean", "normalize": False, "temperature": 1.0}
PARAMS = ModelParams.model_validate({"objective": "dual", "train": {}, **TOWERS})


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_cross_encoder_starts_from_an_encoder_a_dual_encoders_passage_tower_or_a_cross_encoder(
    encoder, dual_model, cross_model, joint_model
):
    with torch.random.fork_rng():
        plain = start_cross(encoder, "mean")
        assert same(plain.encoder, DualEncoder.start(encoder.folder / "hf", **TOWERS).towers["passage"])
        made = start_cross(dual_model, "mean")
    dual = DualEncoder.load(dual_model.folder / "dual")
    assert same(made.encoder, dual.towers["passage"])
    assert not same(made.encoder, dual.towers["query"])
    assert made.pooling == "mean"
    for model in (cross_model, joint_model):
        assert same(start_cross(model, "mean"), CrossEncoder.load(model.folder / "cross"))


def test_a_dual_encoder_goes_on_from_a_trained_one(dual_model):
    again = start_dual(dual_model, PARAMS.model_copy(update={"pooling": "cls"}))
    assert same(again, DualEncoder.load(dual_model.folder / "dual"))
    assert not again.shared


def test_dropout_is_set_everywhere_or_left_alone(cross_model):
    model = CrossEncoder.load(cross_model.folder / "cross")
    told = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    set_dropout(model, None)
    assert told == {0.1}
    set_dropout(model, 0.25)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
