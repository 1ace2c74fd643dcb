"""What a model starts from."""

import pytest
import torch
from tiny_sparse import masked_lm_folder
from tiny_sparse import start as start_sparse
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from tandem.errors import UserError
from tandem.extras.side_by_side import is_side_by_side
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder, load_dual
from tandem.models.learning import keep_layers, set_dropout
from tandem.stages.training import ModelParams
from tandem.store.artifact import open_artifact
from tandem.training.stage import check_input_lengths, run, start_cross, start_dual

TOWERS = {"shared": False, "pooling": "mean", "normalize": False, "temperature": 1.0}
PARAMS = ModelParams.model_validate({"objective": "dual", "train": {}, **TOWERS})


def cross_params(pooling: str) -> ModelParams:
    return ModelParams.model_validate({"objective": "cross", "train": {}, "pooling": pooling})


def same(model, other):
    return all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_a_cross_encoder_starts_from_an_encoder_a_dual_encoders_passage_tower_or_a_cross_encoder(
    encoder, dual_model, cross_model, joint_model
):
    with torch.random.fork_rng():
        plain = start_cross(encoder, cross_params("mean"))
        assert same(
            plain.encoder, DualEncoder.start(encoder.folder / "hf", **TOWERS).towers["passage"]
        )
        cross = start_cross(dual_model, cross_params("mean"))
    dual = DualEncoder.load(dual_model.folder / "dual")
    assert same(cross.encoder, dual.towers["passage"])
    assert not same(cross.encoder, dual.towers["query"])
    assert cross.pooling == "mean"
    for model in (cross_model, joint_model):
        assert same(
            start_cross(model, cross_params("mean")), CrossEncoder.load(model.folder / "cross")
        )


def test_a_dual_encoder_goes_on_from_a_trained_one(dual_model):
    again = start_dual(dual_model, PARAMS.model_copy(update={"pooling": "cls"}))
    assert same(again, DualEncoder.load(dual_model.folder / "dual"))
    assert not again.shared


def test_a_tower_that_both_sides_have_shared_becomes_two(quick_job):
    job = quick_job("dual", "one", shape={"shared": True})
    run(job)
    one = open_artifact(job.out)
    assert start_dual(one, job.params).shared
    two = start_dual(one, job.params.model_copy(update={"shared": False}))
    assert not two.shared
    assert same(two.towers["query"], two.towers["passage"])


def test_a_smaller_tower_of_queries_is_transformers_own_with_so_many_layers(quick_job, encoder):
    job = quick_job("dual", "small", shape={"shared": False, "query_layers": 1})
    run(job)
    folder = open_artifact(job.out).folder / "dual"
    trained = DualEncoder.load(folder)
    towers = {side: AutoModel.from_pretrained(folder / side) for side in ("query", "passage")}
    whole = AutoConfig.from_pretrained(encoder.folder / "hf").num_hidden_layers
    assert [towers[side].config.num_hidden_layers for side in towers] == [1, whole]
    assert whole > 1

    start = AutoModel.from_pretrained(encoder.folder / "hf")
    begun = start_dual(encoder, job.params).towers["query"]
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    states = start(ids, output_hidden_states=True).hidden_states[1]
    torch.testing.assert_close(begun.eval()(ids).last_hidden_state, states)
    plain = towers["query"].eval()(ids).last_hidden_state
    torch.testing.assert_close(trained.towers["query"].eval()(ids).last_hidden_state, plain)
    assert not torch.equal(plain, states)  # it has learned

    again = start_dual(open_artifact(job.out), job.params)
    assert same(again, trained)


def test_a_masked_language_model_keeps_its_head_above_fewer_layers(encoder_folder, tmp_path):
    folder = masked_lm_folder(tmp_path / "mlm", encoder_folder)
    model = start_sparse(folder, shared=False)
    keep_layers(model.towers["query"], 1)
    model.save(tmp_path / "dual", AutoTokenizer.from_pretrained(folder))
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "dual" / "query").eval()
    assert plain.config.num_hidden_layers == 1
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    loaded = load_dual(tmp_path / "dual")
    torch.testing.assert_close(loaded.towers["query"].eval()(ids).logits, plain(ids).logits)
    with pytest.raises(UserError, match="query_layers is 1, but the encoder has 1 layers"):
        keep_layers(loaded.towers["query"], 1)


@pytest.mark.parametrize(
    ("objective", "train", "more", "expected"),
    [
        ("dual", {"dropout": 0.0}, {}, True),
        ("dual", {"dropout": 0.1}, {}, False),
        ("dual", {"dropout": None}, {}, False),  # the encoder's own
        ("dual", {"dropout": 0.0}, {"compile": "always"}, False),
        ("joint", {"dropout": 0.0}, {}, True),
        ("joint", {"dropout": 0.0, "reranker": {"dropout": 0.0}}, {}, True),
        ("joint", {"dropout": 0.0, "reranker": {"dropout": 0.1}}, {}, False),
    ],
)
def test_batches_are_computed_side_by_side_where_nothing_is_random(
    objective, train, more, expected, model_job, tmp_path
):
    job = model_job(objective, tmp_path / "model-0123456789", train, **more)
    assert is_side_by_side(job) is (expected and not torch.cuda.is_available())


def test_dropout_is_set_everywhere_or_left_alone(cross_model):
    model = CrossEncoder.load(cross_model.folder / "cross")
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    set_dropout(model, None)
    assert rates == {0.1}
    set_dropout(model, 0.25)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {
        0.25
    }


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
    models = torch.nn.ModuleDict(
        {part: kind.load({"dual": dual_model, "cross": cross_model}[part].folder / part)}
    )
    check_input_lengths(
        models,
        {"tokens": make_tokens(tmp_path / "fits-0123456789", dataset, passage_length=longest)},
    )
    with pytest.raises(UserError, match=message):
        check_input_lengths(
            models,
            {
                "tokens": make_tokens(
                    tmp_path / "long-0123456789", dataset, passage_length=longest + 1
                )
            },
        )
