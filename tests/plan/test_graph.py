"""Stage keys: what changes them, what does not, and that the default's stay."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tandem.config import retrieval as retrieval_options
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage, read_behind_inputs, read_by_views
from tandem.plan.planner import Planners
from tandem.stages import Params
from tandem.store import files

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).parent / "keys.yaml"


def stages(config):
    return {stage.folder: stage for stage in FullPlan(config, ROOT).stages.values()}


@pytest.fixture(scope="module")
def base(configured):
    return stages(configured())


@pytest.fixture(scope="module")
def new(base, configured):
    """`new(path, value)`: kind and name of the stages an override makes anew."""

    def of(path, value):
        changed = stages(configured(path, value))
        # A dataset without similar queries is made from a judge: what is trained on it follows that as well.
        fresh = [
            changed[f]
            for f in changed.keys() - base.keys()
            if not changed[f].dataset.endswith("-dissimilar")
        ]
        return {(stage.kind, stage.name) for stage in fresh}

    return of


def test_a_joint_learning_rate_renames_the_joint_model_and_what_follows(new):
    names = new("models.rocketqav2.train.lr", 2e-5)
    assert ("model", "rocketqav2") in names
    assert {kind for kind, _ in names} == {"model", "embeddings", "retrieve", "rerank", "score"}
    assert all("rocketqav2" in name for _, name in names)


def test_a_joint_model_may_start_from_an_encoder(configured):
    config = configured("models.rocketqav2.init", {"retriever": "encoder", "reranker": "ce_deneg"})
    model = next(
        stage
        for stage in FullPlan(config, ROOT).stages.values()
        if (stage.kind, stage.name) == ("model", "rocketqav2")
    )
    assert model.upstream["retriever"].kind == "encoder"
    assert model.values["shared"]


def test_int8_renames_passages_and_what_follows_but_not_queries(new):
    names = new("encode.dtype", "int8")
    assert {("embeddings", "de_bm25neg.passages"), ("retrieve", "de_bm25neg.test")} <= names
    assert ("embeddings", "de_bm25neg.test") not in names
    assert new("encode.dtype", "fp16") == set()


def test_a_teacher_renames_its_students_and_not_its_own_teacher(new):
    models = {name for kind, name in new("models.ce_bm25neg.train.lr", 1e-3) if kind == "model"}
    assert {"ce_bm25neg", "ce_deneg", "rocketqav2"} <= models
    assert "de_bm25neg" not in models


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 43),
        ("models.de_bm25neg.train.seed", 43),
        ("models.de_bm25neg.train.precision", "fp32"),
        ("models.de_bm25neg.train.queries_per_batch", 16),
        ("models.de_bm25neg.train.in_batch", False),
        ("models.de_bm25neg.train.list_size", 3),
        ("models.de_bm25neg.candidates.depth", 30),
        ("encode.block", 8192),
        ("lengths.passage", 64),
        ("bm25.k1", 0.8),
        ("rerank.depth", 7),
        ("score.measures", ["RR@10", "nDCG@10", "Success@1", "Success@50", "R@50", "R@100"]),
    ],
)
def test_meaning_is_in_the_key(new, path, value):
    assert new(path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("execution.shards", 3),
        ("execution.engine", "torch"),
        ("execution.search_memory", 64),
        ("execution.devices", 4),
        ("execution.nodes", 2),
        ("execution.threads", 1),
        ("execution.micro_tokens", 512),
        ("execution.graph_tokens", 1024),
        ("execution.attention", "packed"),
        ("execution.compile", "never"),
        ("execution.checkpoint_seconds", 1),
        ("execution.stop_seconds", 1),
        ("tables", ["summary"]),
        ("seed", "42"),
        ("bm25.k1", "0.9"),
        ("models.ce_bm25neg.train.weight_decay", "0.01"),
        # of trainings that choose the last weights, and do not validate themselves
        ("models.ce_bm25neg.train.patience", 7),
        ("models.ce_bm25neg.train.validation_queries", 50),
        ("models.ce_bm25neg.train.validation_depth", 5),
    ],
)
def test_how_it_runs_and_how_it_is_written_is_not(new, path, value):
    assert not new(path, value)


def test_devices_reach_trainings_alone(configured):
    """Only stages that several processes can run get these keys, and no rule asks for more GPUs than are used."""
    config = configured("execution", {"devices": 4, "shards": 3, "threads": 2})
    config["models"]["rocketqav2"]["candidates"]["denoise"] = {"by": "ce_deneg"}
    plan = FullPlan(config, ROOT)
    kinds = {
        stage.kind
        for stage in plan.stages.values()
        if {"devices", "nodes"} & stage.execution.keys()
    }
    assert kinds == {"model", "train_generator"}
    gpus, shards = {}, {}
    for stage in plan.stages.values():
        gpu = plan.placement.gpus(stage.kind, stage.key)
        gpus.setdefault(stage.kind, set()).add(gpu)
        shards.setdefault(stage.kind, set()).add(len(plan.placement.shards(stage.kind, stage.key)))
    assert gpus["model"] == {4}
    assert gpus["rerank"] == gpus["embeddings"] == {1}
    assert gpus["candidates"] == {0, 1}  # without a judge and with one
    assert (gpus["bm25"], gpus["retrieve"]) == ({0}, {1})
    assert all(shards[kind] == {3} for kind in ("tokens", "bm25", "candidates", "retrieve"))
    assert shards["embeddings"] == {0, 3}  # of queries and of passages
    assert shards["rerank"] == {3}


def test_a_search_by_faiss_asks_for_no_gpu_but_is_shared(configured):
    plan = FullPlan(
        configured("execution", {"engine": "faiss", "search_memory": 64, "shards": 2}), ROOT
    )
    for stage in (stage for stage in plan.stages.values() if stage.kind == "retrieve"):
        assert stage.how == "--run.engine faiss --run.search_memory 64"
        assert plan.placement.gpus("retrieve", stage.key) == 0
        assert len(plan.placement.shards("retrieve", stage.key)) == 2


def test_a_search_asks_for_no_gpu_where_no_package_searches_on_one(configured, monkeypatch):
    plan = FullPlan(configured("execution", {}), ROOT)
    searches = [stage for stage in plan.stages.values() if stage.kind == "retrieve"]
    assert {plan.placement.gpus("retrieve", stage.key) for stage in searches} == {1}
    monkeypatch.setattr(retrieval_options, "search_engine", ["faiss"])
    assert {plan.placement.gpus("retrieve", stage.key) for stage in searches} == {0}


def test_nodes_are_started_by_srun_with_their_devices_each(configured):
    plan = FullPlan(configured("execution", {"devices": 4, "nodes": 2}), ROOT)
    stage = next(stage for stage in plan.stages.values() if stage.kind == "model")
    settings = plan.placement.training()
    start = settings.pop("start")(SimpleNamespace(kind="model", key=stage.key), 8)
    assert start == "srun --nodes=2 --ntasks=2 --cpus-per-task=8 --kill-on-bad-exit=1 "
    assert settings == {"mpi": "srun", "nodes": 2, "tasks": 2, "tasks_per_gpu": 0, "gres": "gpu:4"}


def test_a_default_of_ours_is_in_the_key():
    class Before(Params):
        depth: int = 10

    class After(Params):
        depth: int = 20

    before, after = (Stage("bm25", "d", "n", params) for params in (Before(), After()))
    assert before.digest == Stage("bm25", "d", "n", Before(depth=10)).digest
    assert before.digest != after.digest


def test_order_of_keys_is_not_in_the_key(base, configured):
    turned = configured()
    turned["models"] = {k: dict(reversed(v.items())) for k, v in reversed(turned["models"].items())}
    assert stages(dict(reversed(turned.items()))).keys() == base.keys()


def test_where_a_dataset_lies_is_not_in_its_key_but_its_files_are(configured, tmp_path):
    def dataset(folder, text):
        folder.mkdir()
        (folder / "corpus.jsonl").write_text(text)
        (folder / "queries.jsonl").touch()
        config = configured("datasets", {"mine": {"source": "beir", "path": str(folder)}}) | {
            "dataset": "mine"
        }
        return next(s for s in stages(config).values() if s.kind == "dataset")

    first, same, other = (
        dataset(tmp_path / name, text) for name, text in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    assert first.folder == same.folder
    assert first.execution != same.execution
    assert first.folder != other.folder
    # a word that is corrected in the middle of a long file, whose size stays
    long = (
        dataset(tmp_path / word, f"{'x' * 200_000}{word}{'x' * 200_000}") for word in ("cat", "dog")
    )
    assert len({stage.folder for stage in long}) == 2


def test_the_smallest_files_are_known_by_all_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BYTES_READ_WHOLE", 500_000)
    sizes, keys = {"qrels.tsv": 200_000, "queries.tsv": 250_000, "corpus.tsv": 400_000}, {}
    for changed in (None, *sizes):
        for name, size in sizes.items():
            (tmp_path / name).write_bytes(
                b"x" * (size // 2) + (b"y" if name == changed else b"x") + b"x" * (size // 2)
            )
        keys[changed] = files.fingerprint(tmp_path)
    assert keys["corpus.tsv"] == keys[None]
    assert len({*keys.values()}) == 3


def test_an_encoder_folder_is_known_by_its_weights(configured, tmp_path):
    keys = []
    for name, weights in (("a/enc", b"1"), ("b/enc", b"1"), ("c/enc", b"2")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "vocab.txt").write_text("a")
        keys.append(
            next(
                s.key
                for s in stages(configured("encoder", str(folder))).values()
                if s.kind == "encoder"
            )
        )
    assert keys[0] == keys[1] != keys[2]


def test_the_default_systems_keep_their_keys(configured):
    """A refactoring must not rename artifacts that took days. If their meaning changed, write the new keys there."""
    plan = FullPlan(configured(), ROOT)
    rows = {f"{row.system} | {row.first_stage}": stage.key for row, stage in plan.tables["summary"]}
    assert rows == yaml.safe_load(PINNED.read_text())


def test_a_thousand_variants_share_every_stage_that_they_do_not_change(configured):
    planners = Planners(configured(), ROOT)
    planners.of({}).score("rocketqav2.retriever", "here")
    shared = len(planners.stages)
    for i in range(1000):
        planners.of({"models.rocketqav2.train.lr": 1e-5 + i * 1e-9}).score(
            "rocketqav2.retriever", "here"
        )
    assert len([stage for stage in planners.stages.values() if stage.name == "rocketqav2"]) >= 1000
    own = {stage.kind for stage in list(planners.stages.values())[shared:]}
    assert own == {"model", "embeddings", "retrieve", "score"}


def test_equal_models_of_two_names_are_one_stage(configured):
    config = configured("models.twin", {"like": "rocketqav2"})
    plan = FullPlan(config, ROOT)
    twin, there = (
        plan.planner.score(f"{name}.retriever", "here") for name in ("twin", "rocketqav2")
    )
    assert twin is there
    assert not any(stage.name == "twin" for stage in plan.stages.values())


def test_what_is_read_behind_inputs_and_by_views(base):
    """What a machine fetches from object storage: less would miss files, more would fetch what nobody reads."""
    model = next(
        stage
        for stage in base.values()
        if stage.key.startswith("rocketqav2-") and stage.kind == "model"
    )
    assert {stage.kind for stage in read_behind_inputs(model)} == {"model", "encoder"}
    score = next(
        stage
        for stage in base.values()
        if stage.name == "rocketqav2.test" and stage.kind == "score"
    )
    assert read_behind_inputs(score) == []
    kinds = {stage.kind for stage in read_by_views([score])}
    assert {"score", "retrieve", "model", "dataset", "candidates"} <= kinds
    assert not {"embeddings", "tokens", "encoder", "lucene"} & kinds


def test_flags_are_sorted_quoted_and_read_back():
    from tandem.stages.base import flatten, format_value, nest, parse_value

    params = {
        "b": {"text": "it's; $(x)", "number": 1e-5, "word": "12", "none": None, "empty": {}},
        "a": [1, "x"],
    }
    stage = Stage("dataset", "d", "n", params)
    import shlex

    words = shlex.split(stage.args)
    assert words[::2] == sorted(words[::2])
    values = {
        w.removeprefix("--params."): parse_value(v)
        for w, v in zip(words[::2], words[1::2], strict=True)
    }
    assert nest(values) == params
    assert flatten(params)["b.text"] == format_value(params["b"]["text"])
