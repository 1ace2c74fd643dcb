"""Accidents of other experiment managers, each of which must not happen here; and secrets, which are not written down.

(`verify`, `check` and `lineage` have those of theirs in their own files.)
"""

import json
import math
import os
import re

import pytest

from tandem import ROOT
from tandem.plan.graph import Stage, Stages
from tandem.redaction import redacted
from tandem.stages import KINDS
from tandem.store.environment import sources_of_kind
from tandem.store.job import writing

MODEL = {
    "objective": "dual", "seed": 42, "shared": False,
    "train": {"lr": 1e-5, "steps": 100, "queries_per_batch": 32, "in_batch": True, "precision": "bf16", "clip": None},
}  # fmt: skip


def model(**train):
    return Stage("model", "toy", "de", {**MODEL, "train": {**MODEL["train"], **train}})


def test_two_checkpoints_of_one_training_have_two_evaluations():
    # experimaestro 130: the evaluations of two checkpoints got one id
    keys = set()
    for part in (1, 2):
        point = Stage("checkpoint", "toy", "de", {**MODEL, "until": [part, 2]})
        run = Stage("retrieve", "toy", "de.test", {"depth": 10}, {"passages": point})
        keys.add(Stage("score", "toy", "de.test", {"split": "test"}, {"run": run}).key)
    assert len(keys) == 2


def test_a_seed_makes_another_artifact():
    # OpenNIR: the seed was in no path, and a second seed returned the first one's results
    assert (
        Stage("model", "toy", "de", {**MODEL, "seed": 43}).key
        != Stage("model", "toy", "de", MODEL).key
    )


@pytest.mark.parametrize("name", ["queries_per_batch", "in_batch", "precision", "steps", "lr"])
def test_what_decides_a_training_is_in_its_key(name):
    # experimaestro: numbers of devices and processes changed the training and not the id
    other = {
        "queries_per_batch": 64,
        "in_batch": False,
        "precision": "fp32",
        "steps": 200,
        "lr": 2e-5,
    }
    assert model(**{name: other[name]}).digest != model().digest


def test_how_a_training_runs_is_not():
    # BALSAMIC 1213: a temporary folder among the parameters made everything run again
    execution = {"workers": 7, "devices": 8, "path": "/elsewhere", "micro_tokens": 1}
    assert Stage("model", "toy", "de", MODEL, {}, execution).digest == model().digest


def test_a_value_that_equals_a_default_is_hashed_all_the_same():
    # xpm-torch: values equal to a default were left out, so that a changed default returned old results
    assert model(warmup=0.1).digest != model().digest


def test_canonical_values():
    # exca 59: another way of writing a value gave another name to every cache; and others must not fall together
    def key(value):
        return Stage("score", "toy", "s", {"a": value}).digest

    values = [
        0,
        1,
        True,
        False,
        None,
        1.0,
        "1",
        "true",
        2**63,
        2**63 + 1,
        1e-5,
        math.nextafter(1e-5, 1),
        "ü",
        "u\u0308",
    ]
    values += [[], {}, [1, 2], [2, 1], "null"]
    assert len({key(value) for value in values}) == len(values)
    assert key(1e-5) == key(0.00001) == key(float("1E-5"))
    first, second = {"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}
    assert Stage("score", "toy", "s", first).digest == Stage("score", "toy", "s", second).digest


def test_a_new_name_trains_nothing_again():
    # i6_core 478: an output that was called otherwise made all trainings run again
    stages = Stages()
    first = stages.put(model())
    renamed = stages.put(Stage("model", "toy", "retriever", model().params))
    assert renamed is first
    below = [
        Stage("retrieve", "toy", name, {}, {"passages": first})
        for name in ("de.test", "retriever.test")
    ]
    assert below[0].digest == below[1].digest


def test_asking_for_a_key_changes_nothing():
    # Sisyphus 274: hashing a job changed its arguments, so that the second hash was another
    params = {"b": [2, {"d": 1}], "a": {"c": None, "lora": None}}
    before = json.dumps(params)
    stage = Stage("model", "toy", "de", params)
    first = stage.digest
    assert json.dumps(params) == before
    assert Stage("model", "toy", "de", params).digest == first


def test_names_grow_neither_with_depth_nor_with_parameters():
    # capreolus 138: folders named by all that was above them; paths became too long, and one part stood in them twice
    stages = Stages()
    stage = stages.put(model())
    for n in range(200):
        lists = stages.put(Stage("candidates", "toy", "ance", {"round": n}, {"run": stage}))
        stage = stages.put(
            Stage("model", "toy", "ance", {**MODEL, "round": n}, {"candidates": lists})
        )
    assert len(stage.manifest) == len("results/toy/model/ance-0123456789/stage.json")


def test_everything_below_another_input_is_another():
    # pyterrier-caching: a model that was trained again under the old path returned the old one's scores
    runs = [Stage("rerank", "toy", "ce", {}, {"judge.0": model(lr=lr)}).key for lr in (1e-5, 2e-5)]
    assert runs[0] != runs[1]
    old, new = (
        Stage("rerank", "toy", "ce", {}, {"judge.0": judge}) for judge in (model(), model())
    )
    assert old.key == new.key


def test_secrets_are_in_no_manifest(make_job, tmp_path, monkeypatch):
    secrets = ["hunter2hunter2", "s3cr3t-token", "hf_abcdefghijklmnopqrstuvwx", "AKIAEXAMPLE"]
    for name, secret in zip(
        ("PASSWORD", "API_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"), secrets, strict=True
    ):
        monkeypatch.setenv(name, secret)
    files = {
        "corpus.jsonl": {
            "url": f"https://me:{secrets[0]}@host/c.jsonl?X-Amz-Signature={secrets[3]}&part=2"
        }
    }
    params = {
        "source": "beir",
        "downloads": [["corpus.jsonl", f"https://{secrets[0]}@host/c.jsonl"]],
    }
    mirrors = [{"from": "https://host/", "to": f"s3://key:{secrets[1]}@mirror/"}]
    job = make_job(
        "dataset", tmp_path / "toy-0123456789", params, {}, {"files": files, "mirrors": mirrors}
    )
    with writing(job) as draft:
        draft.path("a.txt").write_text("a")
        draft.facts["source"] = f"from https://host/?token={secrets[1]} with {secrets[2]}"
    text = (job.out / "stage.json").read_text()
    assert not any(secret in text for secret in secrets)
    manifest = json.loads(text)
    assert (
        manifest["execution"]["files"]["corpus.jsonl"]["url"]
        == "https://***@host/c.jsonl?X-Amz-Signature=***&part=2"
    )
    assert manifest["execution"]["mirrors"] == [{"from": "https://host/", "to": "s3://***@mirror/"}]
    assert job.params.downloads == params["downloads"]  # the job itself keeps what it needs
    assert not {name for name in os.environ if name in text and len(name) > 6} - {"PYTHON"}


@pytest.mark.parametrize(
    "text",
    [
        "https://host/a?part=2",
        "me@host.org",
        "a?b=c",
        "keys: 12",
        "file:///a/b",
        {"n": 1.5, "x": [None, True]},
        "results/toy/model/hf_multilingual_e5_base-0123456789",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text


def test_every_kind_says_which_modules_decide_its_result():
    # no other manager notices that the code moved under a key; `check` can only where a kind names its modules
    assert all(len(sources_of_kind(kind)) > 1 for kind in KINDS)


def test_the_accidents_that_are_documented_have_tests():
    table = (ROOT / "docs/provenance.md").read_text().partition("## Accidents of others")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named, row
        for file, test in named:
            (path,) = (ROOT / "tests").rglob(file)
            assert f"def {test}(" in path.read_text(), (file, test)
