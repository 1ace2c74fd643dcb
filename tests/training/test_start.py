"""What a model starts from."""

import pytest
import torch

from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.lora import set_dropout
from tandem.stages.training import ModelParams
from tandem.training.stage import check_input_lengths, start_cross, start_dual

TOWERS = {"shared": False, "pooling": "mean", "normalize": False, "temperature": 1.0}
PARAMS = ModelParams.model_validate({"objective": "dual", "train": {}, **TOWERS})


def cross_params(pooling: str) -> ModelParams:
    return ModelParams.model_validate({"objective": "cross", "train": {}, "pooling": pooling})


def same(model, other):
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_cross_encoder_starts_from_an_encoder_a_dual_encoders_passage_tower_or_a_cross_encoder(
    encoder, dual_model, cross_model, joint_model
):
    with torch.random.fork_rng():
        plain = start_cross(encoder, cross_params("mean"))
        assert same(plain.encoder, DualEncoder.start(encoder.folder / "hf", **TOWERS).towers["passage"])
        cross = start_cross(dual_model, cross_params("mean"))
    dual = DualEncoder.load(dual_model.folder / "dual")
    assert same(cross.encoder, dual.towers["passage"])
    assert not same(cross.encoder, dual.towers["query"])
    assert cross.pooling == "mean"
    for model in (cross_model, joint_model):
        assert same(start_cross(model, cross_params("mean")), CrossEncoder.load(model.folder / "cross"))


def test_a_dual_encoder_goes_on_from_a_trained_one(dual_model):
    again = start_dual(dual_model, PARAMS.model_copy(update={"pooling": "cls"}))
    assert same(again, DualEncoder.load(dual_model.folder / "dual"))
    assert not again.shared


def test_dropout_is_set_everywhere_or_left_alone(cross_model):
    model = CrossEncoder.load(cross_model.folder / "cross")
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    set_dropout(model, None)
    assert rates == {0.1}
    set_dropout(model, 0.25)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


@pytest.mark.parametrize(
    ("part", "longest", "message"),
    [
        # The tiny encoder has 96 positions. 94 ids and two special ones fill them; 95 are padded to 104.
        ("dual", 94, "the longer of query and passage, padded, allows inputs of 104 tokens"),
        # 16 of the query, 77 and three special ones are 96; one more is padded to 112.
        ("cross", 77, "query with passage, padded, allows inputs of 112 tokens"),
    ],
)
def test_texts_longer_than_the_positions_are_refused_before_training(
    part, longest, message, make_tokens, dataset, dual_model, cross_model, tmp_path
):
    kind = {"dual": DualEncoder, "cross": CrossEncoder}[part]
    models = torch.nn.ModuleDict({part: kind.load({"dual": dual_model, "cross": cross_model}[part].folder / part)})
    check_input_lengths(models, {"tokens": make_tokens(tmp_path / "fits-0123456789", dataset, passage_length=longest)})
    with pytest.raises(UserError, match=message):
        check_input_lengths(
            models, {"tokens": make_tokens(tmp_path / "long-0123456789", dataset, passage_length=longest + 1)}
        )
