"""Sparse encoders are trained as every dual encoder: killed and resumed, regularised, and without a query encoder."""

import pyarrow.parquet as pq
import pytest
import torch
from comparing import interrupt
from safetensors.torch import load_file
from tiny_sparse import masked_lm_folder

from tandem.errors import UserError
from tandem.models.dual import encode_all, load_dual
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.training import stage

FLOPS = {"query": {"flops": 0.01, "l1": 0.0}, "passage": {"flops": 0.01, "l1": 0.0}, "ramp": 4}


@pytest.fixture(scope="module")
def with_head(tmp_path_factory, make_job, encoder_folder):
    """A masked language model as an artifact, by the stage `encoder`."""
    from tandem.models.published import run

    folder = tmp_path_factory.mktemp("with_head")
    path = masked_lm_folder(folder / "mlm", encoder_folder)
    run(
        make_job(
            "encoder", folder / "mlm-0123456789", {"source": "folder"}, {}, {"path": str(path)}
        )
    )
    return open_artifact(folder / "mlm-0123456789")


@pytest.fixture
def sparse_job(model_job, with_head, tmp_path):
    """`sparse_job(name, train, options, **execution)`: the training of a sparse encoder."""

    def make(name, train=None, options=None, start=None, **execution):
        shape = {"pooling": "max", "representation": {"type": "sparse"} | (options or {})}
        own = {"regularise": FLOPS} | (train or {})
        return model_job(
            "dual",
            tmp_path / f"{name}-0123456789",
            own,
            shape,
            {"start": start or with_head},
            **execution,
        )

    return make


CO_TRAINED = {"regularise": None, "co_training": 0.5, "lr": 1e-4}
PLAIN = {"regularise": None, "lr": 1e-4}
GATED = {"type": "sparterm", "gate": "learned"}


@pytest.mark.parametrize(
    ("options", "train", "towers"),
    [
        ({"type": "sparse"}, {}, ["shared"]),
        ({"type": "sparterm"}, PLAIN, ["shared"]),
        (GATED, PLAIN | {"loss": "expansion_terms"}, ["shared", "gate"]),
        ({"type": "spade"}, CO_TRAINED, ["passage", "passage/2_Dense", "expansion"]),
    ],
    ids=["sparse", "sparterm", "sparterm's gate", "spade"],
)
def test_killed_and_resumed_it_ends_with_the_same_bytes(
    sparse_job, monkeypatch, options, train, towers
):
    whole = sparse_job("whole", train, options)
    stage.run(whole)
    for broken in (1, 4):
        job = sparse_job(f"broken{broken}", train, options, checkpoint_seconds=0)
        interrupt(lambda job=job: stage.run(job), broken, monkeypatch)
        assert not (job.out / "stage.json").exists()
        stage.run(sparse_job(f"broken{broken}", train, options))
        for tower in towers:
            name = f"dual/{tower}/model.safetensors"
            assert sha256(job.out / name) == sha256(whole.out / name)
    kind = options["type"]
    assert f'"type": "{kind}"' in (whole.out / "dual/dual.json").read_text()
    usage = "SparseEncoder" if kind == "sparse" else "load_dual"
    assert usage in next((whole.out / "dual").rglob("README.md")).read_text()


@pytest.mark.parametrize(("kind", "train"), [("sparse", {}), ("spade", CO_TRAINED)])
def test_an_adapter_is_trained_and_saved(model_job, with_head, tmp_path, kind, train):
    shape = {"pooling": "max", "representation": {"type": kind}}
    shape |= {"lora": {"rank": 2, "alpha": 6, "dropout": 0.0, "targets": None}}
    job = model_job(
        "dual",
        tmp_path / "lora-0123456789",
        {"regularise": FLOPS} | train,
        shape,
        {"start": with_head},
    )
    stage.run(job)
    tower = job.out / "dual" / ("shared" if kind == "sparse" else "passage")
    assert any("lora_B" in name for name in load_file(tower / "adapter/adapter_model.safetensors"))
    # the adapter is merged: layers under their own names, which load as they are
    assert not any("lora" in name for name in load_file(tower / "model.safetensors"))
    load_dual(job.out / "dual")


def test_regularisers_make_weights_fewer(sparse_job, tokens):
    opened, counts = Tokens.open(tokens), []
    for number, weight in enumerate((0.0, 3.0)):
        sides = {side: {"flops": weight, "l1": 0.0} for side in ("query", "passage")}
        job = sparse_job(
            f"r{number}", {"regularise": sides | {"ramp": 0}, "lr": 1e-2, "choose": "last"}
        )
        stage.run(job)
        model = load_dual(job.out / "dual").eval()
        counts.append(
            encode_all(
                model, "passage", opened.passages, opened.template, "fp32", 512
            ).count_nonzero()
        )
    assert counts[1] < counts[0] / 2


def test_without_a_query_encoder_the_passages_learn(sparse_job, with_head):
    job = sparse_job(
        "doc",
        {"regularise": None, "choose": "last", "weight_decay": 0.0},
        {"queries": "tokens"},
        micro_tokens=64,
        graph_tokens=64,
    )
    stage.run(job)
    model = load_dual(job.out / "dual")
    assert not model.shared
    assert model.towers["query"].weight.unique().tolist() == [1.0]
    name = "bert.encoder.layer.0.output.dense.weight"
    before = load_file(with_head.path("hf/model.safetensors"))[name]
    assert not torch.equal(load_file(job.out / "dual/passage/model.safetensors")[name], before)


def test_spade_goes_on_from_its_warm_up_by_co_training(sparse_job):
    common = {"regularise": None, "choose": "last", "weight_decay": 0.0, "lr": 1e-4}
    warm = sparse_job("warm", common, {"type": "spade"})
    stage.run(warm)
    job = sparse_job(
        "spade", common | {"co_training": 0.5}, {"type": "spade"}, start=open_artifact(warm.out)
    )
    stage.run(job)
    for name in ("passage", "passage/2_Dense", "expansion"):
        before, after = (
            load_file(folder / "dual" / name / "model.safetensors")
            for folder in (warm.out, job.out)
        )
        assert any(not torch.equal(before[key], after[key]) for key in before)
    assert {"weights", "sup", "query_terms"} <= set(
        pq.read_table(job.out / "log.parquet")["name"].to_pylist()
    )


def test_what_cannot_start_is_refused(sparse_job, encoder, model_job, with_head, tmp_path):
    with pytest.raises(UserError, match="has no language-modelling head"):
        stage.run(sparse_job("headless", start=encoder))
    shape = {"pooling": "mean", "representation": {"type": "sparse"}}
    with pytest.raises(
        UserError, match="pooling is of single vectors, but representation is sparse"
    ):
        stage.run(
            model_job("dual", tmp_path / "mean-0123456789", None, shape, {"start": with_head})
        )


def test_a_gate_is_learned_first_and_then_used_as_it_is(sparse_job, with_head):
    common = {"regularise": None, "choose": "last", "weight_decay": 0.1, "lr": 1e-3}
    first = sparse_job("gate", common | {"loss": "expansion_terms", "steps": 20}, GATED)
    stage.run(first)
    log = pq.read_table(first.out / "log.parquet").to_pylist()
    losses = [row["value"] for row in log if row["name"] == "loss"]
    assert losses[-1] < 0.5 * losses[0]
    assert "- `expansion_terms`: -(" in (first.out / "dual/README.md").read_text()
    second = sparse_job("terms", common, GATED, start=open_artifact(first.out))
    stage.run(second)

    def weights_of(path):
        return load_file(path)["bert.encoder.layer.0.output.dense.weight"]

    start = weights_of(with_head.path("hf/model.safetensors"))
    encoders, gates = (
        [weights_of(job.out / f"dual/{name}/model.safetensors") for job in (first, second)]
        for name in ("shared", "gate")
    )
    assert torch.equal(encoders[0], start)
    assert not torch.equal(encoders[1], start)
    assert not torch.equal(gates[0], start)
    assert torch.equal(gates[1], gates[0])
