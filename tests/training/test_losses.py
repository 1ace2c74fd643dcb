"""What holds for every loss of the registries; RocketQAv2's by hand."""

import inspect
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytest import approx

from tandem.config.losses import (
    KEYED,
    Distil,
    VectorWeights,
    distillation,
    option_takers,
    regulariser,
    supervision,
)
from tandem.config.parsing import parse
from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.errors import UserError
from tandem.plugins import Plugin, load_plugins
from tandem.training.losses import find_distillation_loss, find_supervision_loss
from tandem.training.losses.listwise import (
    dynamic_listwise_distillation,
    listwise,
    pointwise,
    reference_listwise_distillation,
)

LN2, LN3 = math.log(2), math.log(3)
EVERY = [("by first", name) for name in supervision] + [
    ("by teacher", name) for name in distillation
]
# what the teacher's order alone decides
BY_ORDER = {"hinge", "ranknet", "lambdarank", "lambda_mrr", "listmle"}
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]], dtype=torch.bool)


def full(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def value(kind, name, scores, mask, teacher):
    """A loss of either registry."""
    return (
        supervision[name](scores, mask)
        if kind == "by first"
        else distillation[name](scores, teacher, mask)
    )


def drawn(*shape):
    """Scores and a teacher's, without ties."""
    generator = torch.Generator().manual_seed(1)
    return (3 * torch.randn(*shape, dtype=torch.float64, generator=generator) for _ in range(2))


def test_listwise_by_hand():
    # e^ln2 / (e^ln2 + e^0 + e^0) = 2/4; e^0 / (e^0 + e^ln3 + e^0) = 1/5; a sum over the two queries
    scores = torch.tensor([[LN2, 0.0, 0.0], [0.0, LN3, 0.0]])
    assert listwise(scores, full(scores)).item() == approx(math.log(2) + math.log(5))


def test_pointwise_by_hand():
    # σ(ln 3) = 3/4, 1 - σ(ln 3) = 1/4; the mean over two passages, the sum over two queries
    scores = torch.tensor([[LN3, LN3], [0.0, 0.0]])
    expected = (-math.log(3 / 4) - math.log(1 / 4)) / 2 + (LN2 + LN2) / 2
    assert pointwise(scores, full(scores)).item() == approx(expected)


def test_distillation_of_two_passages_by_hand():
    # softmax(0, ln 3) = (1/4, 3/4); softmax(0, 0) = (1/2, 1/2)
    de, ce = torch.tensor([[0.0, LN3]]), torch.zeros(1, 2)
    paper = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert dynamic_listwise_distillation(de, ce, full(de)).item() == approx(paper)
    reference = (0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)) / 2
    assert reference_listwise_distillation(de, ce, full(de)).item() == approx(reference)


def test_reference_gradient_is_the_difference_of_the_softmaxes_over_the_length():
    # d KL(t || softmax(x)) / dx = softmax(x) - t; Paddle's mean divides by the list's length, here 3
    de, ce = torch.tensor([[0.2, -1.0, 0.7]], requires_grad=True), torch.tensor([[1.0, 0.0, -0.3]])
    reference_listwise_distillation(de, ce, full(de)).backward()
    torch.testing.assert_close(de.grad, (de.detach().softmax(-1) - ce.softmax(-1)) / 3)


@pytest.mark.parametrize("name", distillation)
def test_the_paper_teaches_both_the_others_only_the_student(name):
    student, teacher = (t.requires_grad_() for t in drawn(2, 4))
    distillation[name](student, teacher, full(student)).backward()
    assert student.grad.abs().sum() > 0
    assert (teacher.grad is not None) is (name == "paper")


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_padded_list_is_the_shorter_one_and_queries_are_summed(kind, name):
    scores, teacher = drawn(2, 4)
    mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
    scores[1, 3], teacher[1, 3] = 50.0, math.nan
    scores.requires_grad_()
    loss = value(kind, name, scores, mask, teacher)
    alone = value(kind, name, scores[:1], mask[:1], teacher[:1])
    short = value(kind, name, scores[1:, :3], mask[1:, :3], teacher[1:, :3])
    assert loss.item() == approx((alone + short).item(), rel=1e-12)
    loss.backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[1, 3] == 0


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_gradients_against_finite_differences(kind, name):
    scores, teacher = drawn(3, 4)
    assert torch.autograd.gradcheck(
        lambda s: value(kind, name, s, MASK, teacher), scores.requires_grad_()
    )
    if name == "paper":
        fixed = scores.detach()
        assert torch.autograd.gradcheck(
            lambda t: value(kind, name, fixed, MASK, t), teacher.requires_grad_()
        )


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_only_pointwise_losses_and_regression_see_the_origin_of_a_lists_scores(kind, name):
    scores, teacher = drawn(3, 4)
    moved = scores + torch.tensor([[5.0], [-2.0], [0.5]], dtype=scores.dtype)
    same = value(kind, name, moved, MASK, teacher).item() == approx(
        value(kind, name, scores, MASK, teacher).item()
    )
    assert same is (name not in ("pointwise", "mse", "mse_probability"))


@pytest.mark.parametrize("name", distillation)
def test_a_teachers_scale_matters_where_more_than_its_order_does(name):
    student, teacher = drawn(3, 4)
    cubed = value("by teacher", name, student, MASK, teacher**3 + 1)
    same = cubed.item() == approx(value("by teacher", name, student, MASK, teacher).item())
    assert same is (name in BY_ORDER)


def test_a_configuration_takes_every_option_of_a_loss():
    assert set(regulariser) == set(VectorWeights.model_fields)
    for model in (DualTrain, CrossTrain, JointTrain, Distil):
        options = {
            name: model.model_fields[name].default
            for name in option_takers()
            if name in model.model_fields
        }
        assert set(options.values()) == {1.0}


def test_losses_get_the_options_that_they_take():
    takers = {}
    for registry in (supervision, distillation):
        for name in registry:
            for option, parameter in inspect.signature(registry[name]).parameters.items():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    takers.setdefault(option, set()).add(name)
                    assert parameter.default == 1.0
    assert takers == {option: set(losses) for option, losses in option_takers().items()}
    scores, teacher = drawn(1, 2)
    lead = (scores[0, 0] - scores[0, 1]).item()
    assert find_supervision_loss("hinge", DualTrain(margin=20.0))(
        scores, full(scores)
    ).item() == approx(20 - lead)
    warm = find_distillation_loss("kl", JointTrain(temperature=5.0))(scores, teacher, full(scores))
    assert warm.item() == approx(distillation["kl"](scores / 5, teacher / 5, full(scores)).item())


def test_names_are_known_without_importing_the_losses():
    names = "from tandem.config.losses import supervision as s, distillation as d; print(*s, *d)"
    code = f"import sys; {names}; assert 'torch' not in sys.modules"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == [*supervision, *distillation]
    assert {"listwise", "pointwise", "paper", "kl", "hinge"} <= set(output.split())


PLUGIN = """
from tandem.config.losses import distillation, supervision


@supervision("focal")
def focal(scores, mask, *, gamma: float, margin: float = 1.0, signed: bool = False):
    return (gamma * scores).sum() + margin


@distillation("cubed")
def cubed(student, teacher, mask, *, weight: float = 2.0):
    return weight * student.sum()
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A file with a loss of each kind, registered for one test."""
    for registry in (supervision, distillation):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))
    path = tmp_path / "losses_of_mine.py"
    path.write_text(PLUGIN)
    load_plugins([str(path)])


def test_a_plugins_loss_gets_its_own_options(plugin):
    scores, teacher = drawn(1, 2)
    train = DualTrain(loss="focal", loss_options={"gamma": 3}, margin=7.0)
    assert find_supervision_loss("focal", train)(scores, full(scores)).item() == approx(
        3 * scores.sum().item() + 7
    )
    # not that of the term
    distil = Distil(from_="ce", loss="cubed", loss_options={"weight": 5.0}, weight=0.5)
    assert find_distillation_loss("cubed", distil)(scores, teacher, full(scores)).item() == approx(
        5 * scores.sum().item()
    )
    joint = JointTrain(
        semantics="cubed", supervision="focal", loss_options={"gamma": 2.0, "weight": 4.0}
    )
    assert find_supervision_loss("focal", joint)(scores, full(scores)).item() == approx(
        2 * scores.sum().item() + 1
    )
    assert find_distillation_loss("cubed", joint)(scores, teacher, full(scores)).item() == approx(
        4 * scores.sum().item()
    )


@pytest.mark.parametrize("text", [{"gamma": "2", "signed": "true"}, {"gamma": 2, "signed": True}])
def test_an_options_value_is_of_its_type_however_it_was_written(plugin, text):
    """Else `--config`, whose nested values Snakemake passes on as text, would give a model another key."""
    written = DualTrain(loss="focal", loss_options=text).model_dump_json()
    assert (
        written
        == DualTrain(loss="focal", loss_options={"gamma": 2.0, "signed": True}).model_dump_json()
    )


@pytest.mark.parametrize(
    ("section", "value", "parts"),
    [
        (DualTrain, {"loss": "focal"}, ["loss_options.gamma", "missing"]),
        (
            DualTrain,
            {"loss": "focal", "loss_options": {"gamma": "x"}},
            ["loss_options.gamma", '"x"', "allowed: number"],
        ),
        (
            CrossTrain,
            {"loss": "focal", "loss_options": {"gama": 1}},
            ["loss_options.gama", "1", "gamma, signed"],
        ),
        (
            CrossTrain,
            {"loss": "focal", "loss_options": {"margin": 2}},
            ["loss_options.margin", "2", "gamma, signed"],
        ),
        (
            DualTrain,
            {"loss_options": {"margin": 2}},
            ["loss_options.margin", "2", "allowed: none", "listwise"],
        ),
        (
            Distil,
            {"from": "ce", "loss": "cubed", "loss_options": {"t": True}},
            ["loss_options.t", "True", "weight"],
        ),
        (
            DualTrain,
            {"loss": "hinge", "loss_options": {"a": []}},
            ["loss_options.a", "[]", "boolean"],
        ),
    ],
)
def test_options_that_no_loss_takes_are_refused(plugin, section, value, parts):
    model, lines = parse(section, value, "models.de.train")
    assert model is None
    assert len(lines) == 1
    assert lines[0].startswith(f"models.de.train.{parts[0]} ")
    assert all(part in lines[0] for part in parts)


@pytest.mark.parametrize(
    ("compute", "returned"),
    [
        (lambda scores, mask: scores.sum(1), "a tensor of shape (2,)"),
        (lambda scores, mask: scores.sum().item(), "0.0"),
        (lambda scores, mask: None, "None"),
    ],
)
def test_a_loss_that_returns_no_scalar_is_named(monkeypatch, compute, returned):
    monkeypatch.setattr(supervision, "_entries", supervision._entries | {"odd": compute})
    monkeypatch.setattr(supervision, "_plugins", {"odd": Plugin(Path("my.py"), "0")})
    scores = torch.zeros(2, 3)
    with pytest.raises(UserError) as error:
        find_supervision_loss("odd", DualTrain())(scores, full(scores))
    needed = "a tensor of one number is needed, the sum over queries"
    assert str(error.value) == f"loss odd returned {returned}; {needed}"


def test_tandems_own_losses_have_no_options_but_the_keys():
    assert set(option_takers()) == set(KEYED)
