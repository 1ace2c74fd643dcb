"""The card of a trained model against the job it tells of, and its code run as it stands."""

import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch
import yaml

from tandem.extras.usage import (
    InputLengths,
    describe_cross_usage,
    describe_dual_usage,
    fit_auto_class,
    list_saved_folders,
)
from tandem.models import tokenisation
from tandem.models.cross import CrossEncoder, read_cross
from tandem.models.dual import DualEncoder, load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape
from tandem.models.tokens import Template
from tandem.store.artifact import open_artifact
from tandem.training.stage import run


@pytest.fixture
def card():
    """`card(folder)`: front matter, text and code blocks of a folder's README.md."""

    def read(folder):
        text = (folder / "README.md").read_text()
        _, front, body = text.split("---\n", 2)
        return yaml.safe_load(front), body, re.findall(r"```python\n(.*?)```", body, re.S)

    return read


def test_a_dual_encoders_card_tells_of_its_job(quick_job, card, encoder, runs):
    job = quick_job("dual", train={"choose": "dev"}, shape={"temperature": 0.5})
    run(job)
    front, body, _ = card(job.out / "dual/shared")
    assert front["library_name"] == "sentence-transformers"
    assert front["pipeline_tag"] == "sentence-similarity"
    assert {"dual-encoder", "tandem"} <= set(front["tags"])
    assert not {"base_model", "license"} & front.keys()  # a folder of random weights has neither
    assert "# quick-0123456789: dual encoder" in body
    assert "- `listwise`: " in body
    for row in (
        "train.lr | 0.001",
        "train.queries_per_batch | 4",
        "temperature | 0.5",
        'train.choose | "dev"',
    ):
        assert f"| {row} |" in body
    for row in (
        "dataset | tiny-0000000001",
        "passages | 60",
        "training lists | 20",
        "negatives: depth | 9",
    ):
        assert f"| {row} |" in body
    assert f"| negatives from | {runs['train'].key} |" in body
    log = {
        (row["step"], row["name"]): row["value"]
        for row in pq.read_table(job.out / "log.parquet").to_pylist()
    }
    for row in (
        "steps | 4",
        f"last loss | {log[4, 'loss']:.6g}",
        f"validation lists from | {runs['dev'].key}",
    ):
        assert f"| {row} |" in body
    values = {step: value for (step, name), value in log.items() if name == "dev nDCG@10 (dual)"}
    assert (
        f"| best validation | {max(values.values()):.6g} at step {max(values, key=values.get)} |"
        in body
    )
    assert f"| start | {encoder.key} |" in body
    assert f"| its weights' sha256 | {encoder.manifest.facts['weights_sha256']} |" in body
    assert f"| library torch | {torch.__version__} |" in body
    manifest = open_artifact(job.out).manifest
    assert f"| commit | {manifest.commit}" in body
    assert manifest.machine.node not in re.sub(r"[0-9a-f]{40,}", "", body).split()
    assert manifest.finished[:10] not in body


def test_a_card_has_the_sizes_that_followed_from_the_data(quick_job, card):
    job = quick_job("dual", train={"sizes": "data", "budget_minutes": 1e-6, "steps": None})
    run(job)
    sizes = open_artifact(job.out).manifest.facts["sizes"]
    assert (sizes["queries_per_batch"], job.params.train.queries_per_batch) == (32, 4)
    _, body, _ = card(job.out / "dual/shared")
    for name, value in sizes.items():
        assert f"| train.{name} | {value} |" in body


def test_what_the_encoder_and_the_data_are_licensed_for_is_told(
    quick_job, card, encoder, dataset, monkeypatch
):
    monkeypatch.setitem(encoder.manifest.execution, "licence", "Apache-2.0")
    hub = {"source": "hub", "name": "org/some-encoder", "revision": "0" * 40}
    for name, value in hub.items():
        monkeypatch.setitem(encoder.manifest.params, name, value)
    monkeypatch.setitem(dataset.manifest.execution, "licence", "CC-BY-SA-3.0")
    monkeypatch.setattr("tandem.contrib.cards.card.open_artifact", lambda *_, **__: encoder)
    job = quick_job("cross", train={"loss": "pointwise"})
    run(job)
    front, body, _ = card(job.out / "cross")
    assert (front["base_model"], front["license"]) == ("org/some-encoder", "apache-2.0")
    assert front["pipeline_tag"] == "text-ranking"
    assert "| its licence | CC-BY-SA-3.0 |" in body
    assert "Trained by Tandem from org/some-encoder" in body
    assert "- `pointwise`: " in body


@pytest.mark.parametrize(
    ("objective", "shape"),
    [
        ("dual", {"shared": True, "pooling": "mean", "normalize": True, "temperature": 0.05}),
        ("dual", {"shared": False, "pooling": "cls"}),
        ("cross", {"pooling": "mean"}),
        ("cross", {"pooling": "cls"}),
        ("cross", {"pooling": "classifier"}),
    ],
)
def test_the_code_in_the_card_runs_and_gives_one_score(
    objective, shape, quick_job, card, monkeypatch
):
    job = quick_job(objective, shape=shape)
    run(job)
    monkeypatch.chdir(job.out)
    scores = []
    top = {"cross": "cross", "dual": "dual/shared" if shape.get("shared") else "dual"}[objective]
    _, _, blocks = card(job.out / top)
    assert [
        re.search(r"from (tandem|sentence_transformers|transformers)", block)[1] for block in blocks
    ] == ["tandem", "sentence_transformers", "transformers"]
    for block in blocks:
        names: dict = {}
        exec(block, names)
        scores.append(float(torch.as_tensor(names["scores"]).detach().reshape(())))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-4, abs=1e-5)
    assert scores[0] != 0


@pytest.mark.parametrize(
    "shape",
    [
        {"shared": False, "pooling": "cls"},
        {"shared": True, "pooling": "max", "representation": {"type": "unicoil"}},
        {"shared": True, "representation": {"type": "multi", "dim": 8, "query_tokens": 12}},
    ],
    ids=lambda shape: shape.get("representation", {"type": "single"})["type"],
)
def test_a_card_of_titles_as_segments_shows_how_to_give_both(
    shape, quick_job, card, make_job, tmp_path, monkeypatch
):
    job = quick_job("dual", shape=shape)
    inputs = {name: job.inputs[name] for name in ("dataset",)} | {"encoder": job.inputs["start"]}
    params = {"query_length": 16, "passage_length": 24, "titled": True}
    tokens_job = make_job("tokens", tmp_path / "titled-0000000001", params, inputs)
    tokenisation.run(tokens_job)
    job.inputs["tokens"] = open_artifact(tokens_job.out)
    run(job)
    monkeypatch.chdir(job.out)
    _, _, [block] = card(next(job.out.rglob("README.md")).parent)
    names: dict = {}
    exec(block, names)
    model = load_dual(job.out / "dual").eval()
    tokenizer = load_tokenizer(job.out / ("dual/shared" if shape["shared"] else "dual/passage"))
    template = replace(Template.of(tokenizer), titled=True)
    query, title, text = tokenizer(["a query", "a title", "a passage"], add_special_tokens=False)[
        "input_ids"
    ]
    passage = template.with_titles([title], [text], 24)
    vectors = [
        model.encode(*side, template, "fp32") for side in (("query", [query]), ("passage", passage))
    ]
    assert names["scores"].item() == pytest.approx(model.scores(*vectors).item(), rel=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_segments_of_a_pair_end_where_the_passage_begins(
    family, family_folder, tmp_path, monkeypatch
):
    """RoBERTa puts two tokens between the texts of a pair, but one behind a text alone."""
    start = family_folder(family)
    CrossEncoder.start(start, "segments").save(tmp_path / "cross", load_tokenizer(start))
    usage = describe_cross_usage(read_cross(tmp_path / "cross"), InputLengths(16, 24, 2, 3), None)
    monkeypatch.chdir(tmp_path)
    scores = []
    for block in re.findall(r"```python\n(.*?)```", usage, re.S):
        names: dict = {}
        exec(block, names)
        scores.append(names["scores"].item())
    assert len(scores) == 2
    assert scores[1] == pytest.approx(scores[0], rel=1e-5)


@pytest.mark.parametrize("part", ["dual", "cross"])
def test_of_t5_the_lines_load_the_encoder_alone(part, family_folder, tmp_path, monkeypatch):
    start, lengths = family_folder("t5"), InputLengths(16, 24, 1, 2)
    tokenizer = load_tokenizer(start)
    if part == "dual":
        DualEncoder.start(start, True, "mean", True, 0.05).save(tmp_path / "dual", tokenizer)
        usage = describe_dual_usage(DualShape.read(tmp_path / "dual"), lengths)
    else:
        CrossEncoder.start(start, "mean").save(tmp_path / "cross", tokenizer)
        usage = describe_cross_usage(read_cross(tmp_path / "cross"), lengths, None)
    (folder,) = list_saved_folders(tmp_path / part)
    monkeypatch.chdir(tmp_path)
    scores = []
    for block in re.findall(r"```python\n(.*?)```", fit_auto_class(usage, folder), re.S):
        names: dict = {}
        exec(block, names)
        scores.append(float(torch.as_tensor(names["scores"]).detach().reshape(())))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-4, abs=1e-5)


def test_a_joint_models_folders_each_have_a_card_and_the_same_training_writes_the_same(
    quick_job, card
):
    first, second = (quick_job("joint", name, shape={"shared": False}) for name in ("aaaa", "bbbb"))
    for job in (first, second):
        run(job)
    places = [path.parent.relative_to(first.out) for path in sorted(first.out.rglob("README.md"))]
    assert [str(place) for place in places] == ["cross", "dual", "dual/passage", "dual/query"]
    for place in places:
        texts = [(job.out / place / "README.md").read_text() for job in (first, second)]
        assert texts[0].replace("aaaa-0", "bbbb-0") == texts[1]
    _, body, _ = card(first.out / "cross")
    assert "RocketQAv2 Eq. 4" in body
    assert "RocketQAv2 Eq. 5" in body
    assert "dual/README.md" in open_artifact(first.out).manifest.files


def test_further_lists_are_told_of(model_job, card, lists, runs, tmp_path):
    job = model_job(
        "dual", tmp_path / "joined-0123456789", {"choose": "last"}, more={"candidates.1": lists}
    )
    run(job)
    _, body, _ = card(job.out / "dual/shared")
    assert f"| negatives also from | {runs['train'].key} |" in body
    assert "| training lists | 40 |" in body


def test_a_loss_by_labels_and_one_by_a_teacher_of_the_same_name_are_both_told(quick_job, card):
    job = quick_job("joint", train={"semantics": "hinge", "supervision": "hinge"})
    run(job)
    assert len(re.findall("- `hinge`: max", card(job.out / "cross")[1])) == 2


def test_the_card_of_a_model_of_a_model_names_where_the_weights_began(quick_job, card, encoder):
    first = quick_job("dual", "first")
    run(first)
    second = quick_job("cross", "second")
    second.inputs["start"] = open_artifact(first.out)
    run(second)
    _, body, _ = card(second.out / "cross")
    assert f"Trained by Tandem from {encoder.key}." in body
    assert "| start | first-0123456789 |" in body
    assert f"| encoder | {encoder.key} |" in body
