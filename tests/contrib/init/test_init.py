"""`tandem init`: the file that it writes plans as it is, and says what splits, encoder and machine allow."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub.utils import filter_repo_objects
from tiny_project import ROOT, write_beir

from tandem.cli import run
from tandem.config.merging import gathered
from tandem.contrib.init.configuration import (
    ANALYZED,
    CPU,
    choose_execution,
    choose_experiment,
    find_starting_encoder,
    format_yaml,
    list_describing_files,
)
from tandem.contrib.init.first_configuration import guess_language
from tandem.contrib.init.look import FoundMachine, Look
from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.plan.sizes import EncoderShape

MOST_LINES = 25


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working folder of its own, on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


@pytest.fixture
def gpu(tmp_path, monkeypatch) -> None:
    """A driver's tool that lists a GPU, first on the path."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: X (UUID: 1)" || echo "NVIDIA A10, 23028"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def planned(path: Path) -> Plan:
    return Plan(gathered([path], ROOT), ROOT)


def systems(plan: Plan) -> list[str]:
    return [row.system for row, _ in plan.tables[plan.settings.tables[0]]]


def test_a_test_split_allows_bm25_and_the_encoder_as_it_is(here, documents, capsys):
    write_beir(here / "data", documents, splits=("test",))
    assert run(["init", "mine", "--data", "data"]) == 0
    page = capsys.readouterr().out
    assert "data: data, format beir: 60 passages, queries: test 20\n" in page
    assert (
        "splits: test alone: BM25 and the encoder as it is (zero-shot); the file offers training without "
        in page
    )
    assert "encoder: minilm: pooling mean, normalize true, temperature 0.05\n" in page
    assert "wrote mine.yaml\n" in page
    assert "everything takes about " in page
    assert page.splitlines()[-1].startswith("      tandem run mine.yaml ")
    plan = planned(Path("mine.yaml"))
    assert systems(plan) == ["BM25", "Encoder, untrained"]
    assert plan.settings.datasets["mine"].counts == {"passages": 60, "test": 20}
    assert len(Path("mine.yaml").read_text().splitlines()) <= MOST_LINES


def test_files_that_look_like_data_and_are_not_read_are_named(here, documents, capsys):
    write_beir(here / "data", documents, splits=("test",))
    run(["init", "mine", "--data", "data"])
    assert "not read" not in capsys.readouterr().out
    for name in ("corpus2.tsv", "more.jsonl.gz", "README.md", "dataset_infos.json", "old.csv.bak"):
        (here / "data" / name).touch()
    run(["init", "mine", "--data", "data", "--force"])
    assert "not read: corpus2.tsv, more.jsonl.gz\n" in capsys.readouterr().out


def test_of_named_files_those_that_are_not_read_are_named(here, capsys):
    Path("corpus.tsv").write_text("d\tThe otter eats crabs.\n")
    Path("queries.tsv").write_text("q\twhat does the otter eat\n")
    Path("qrels.tsv").write_text("q\td\t1\n")
    Path("notes.csv").write_text("a,b\n")
    Path("other.csv").write_text("a,b\n")
    run(["init", "mine", "--data", "corpus.tsv", "queries.tsv", "qrels.tsv", "notes.csv"])
    assert "not read: notes.csv\n" in capsys.readouterr().out


def test_commands_name_the_file_as_it_was_written(here, documents, capsys):
    write_beir(here / "data", documents, splits=("test",))
    (here / "some where").mkdir()
    assert run(["init", "some where/mine", "--data", "data"]) == 0
    page = capsys.readouterr().out
    assert "tandem estimate 'some where/mine.yaml')" in page
    assert "tandem run 'some where/mine.yaml' baseline" in page


def test_training_without_labels_is_offered_where_no_query_has_any(here, documents, capsys):
    write_beir(here / "data", documents, splits=("test",))
    run(["init", "mine", "--data", "data"])
    lines = Path("mine.yaml").read_text().splitlines()
    offered = [
        line.removeprefix("# ")
        for line in lines
        if line.startswith(("# recipes", "# tables", "# generations"))
    ]
    assert len(offered) == 3
    kept = [line for line in lines if not line.startswith("tables: ")]
    Path("trained.yaml").write_text("\n".join([*kept, *offered]) + "\n")
    assert systems(planned(Path("trained.yaml"))) == [
        "BM25",
        "Encoder, untrained",
        "DE (no labels)",
        "CE (no labels)",
    ]


def test_training_queries_allow_every_system(here, documents, encoder_folder, capsys):
    write_beir(here / "data", documents, splits=("train", "dev", "test"))
    run(["init", "mine", "--data", "data", "--encoder", str(encoder_folder)])
    assert (
        "splits: train and dev and test: every system is trained, and scored on test"
        in capsys.readouterr().out
    )
    plan = planned(Path("mine.yaml"))
    # all but the encoder as it is, which does not say how its vectors are made
    assert len(systems(plan)) == 7
    models = plan.settings.models
    assert {name: models[name].train.budget_minutes for name in CPU.minutes} == CPU.minutes
    assert all(models[name].train.choose == "dev" for name in CPU.minutes)
    # 20 words at 1.3 tokens; the encoder has 96 positions
    assert plan.settings.lengths.model_dump(exclude_unset=True) == {"query": 16, "passage": 32}
    assert len(Path("mine.yaml").read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    ("encoder", "lengths"),
    [
        ("minilm", {"query": 16, "passage": 32}),  # no prompts
        # ten tokens in front of a query, which has nine
        ("bge-small-en-v1.5", {"query": 32, "passage": 32}),
        ("e5-small-v2", {"query": 16, "passage": 32}),
        ("intfloat/e5-small-v2", {"query": 16, "passage": 32}),  # the same entry, for its prompts
        ("qwen3-embedding-0.6b", {"query": 40, "passage": 32}),  # a prompt of a sentence
    ],
)
def test_prompts_leave_room_for_the_texts(here, documents, encoder, lengths):
    write_beir(here / "data", documents, splits=("test",))
    run(["init", "mine", "--data", "data", "--encoder", encoder])
    settings = planned(Path("mine.yaml")).settings
    assert settings.encoder == encoder.rpartition("/")[2]
    assert settings.lengths.model_dump(exclude_unset=True) == lengths


def test_a_character_of_chinese_is_a_token_however_short_the_texts(here):
    # Ten characters and twelve without a space, behind a prompt of 19: 16 or 24 tokens would cut every query.
    Path("data/qrels").mkdir(parents=True)
    Path("data/corpus.jsonl").write_text('{"_id": "d", "text": "蝙蝠在夜里飞行并听回声。"}\n')
    Path("data/queries.jsonl").write_text('{"_id": "q", "text": "什么动物在夜里飞行？"}\n')
    Path("data/qrels/test.tsv").write_text("q\td\t1\n")
    run(["init", "mine", "--data", "data", "--encoder", "bge-small-zh-v1.5"])
    settings = planned(Path("mine.yaml")).settings
    assert settings.lengths.query == 32
    assert settings.datasets["mine"].tokens == {"passage": 12, "query": 10}


def test_names_that_yaml_reads_as_other_values_are_quoted(here, documents):
    write_beir(here / "data", documents, splits=("test",))
    run(["init", "2024", "--data", "data", "--language", "no"])
    settings = planned(Path("2024.yaml")).settings
    assert (settings.dataset, settings.datasets["2024"].language) == ("2024", "no")


def test_an_existing_file_stays_unless_forced(here, documents):
    write_beir(here / "data", documents)
    Path("mine.yaml").write_text("mine: true\n")
    with pytest.raises(
        UserError, match=r"mine\.yaml exists; choose another name, or replace it with --force"
    ):
        run(["init", "mine", "--data", "data"])
    assert Path("mine.yaml").read_text() == "mine: true\n"
    run(["init", "mine.yaml", "--data", "data", "--force"])
    assert planned(Path("mine.yaml")).settings.dataset == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine", "--data", "none"], "--data none: no such file or folder"),
        (["mi ne", "--data", "data"], "mi ne: a name is letters, digits"),
        (
            ["config", "--data", "data"],
            "config.yaml: its results would replace those of config/config.yaml; choo",
        ),
        (
            ["mine", "--data", "data", "--encoder", "minilmm"],
            "encoder: minilmm is unknown.*did you mean minilm",
        ),
        (["mine", "--data", "data", "--encoder", "data"], "data: model.safetensors is missing"),
        (
            ["mine", "--data", "data", "--language", "English"],
            "--language English: a code of ISO 639-1 is needed, such",
        ),
        (
            ["mine", "--data", "data", "--language", "cn"],
            "--language cn: a code of ISO 639-1 is needed, such as en or zh",
        ),
        (["mine"], "requires an argument"),
        (
            ["mine", "--data"],
            "--data names nothing; allowed: a folder, an archive, files, or ir_datasets:ID",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(here, documents, words, message):
    write_beir(here / "data", documents)
    with pytest.raises(UserError, match=message) as error:
        run(["init", *words])
    assert "\n" not in str(error.value)
    assert [path.name for path in here.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("queries", "positives", "expected"),
    [
        ({"test": 9}, {"test": 9}, ("summary", False, "dev", {})),
        ({"dl19": 9}, {"dl19": 9}, ("summary", False, "dev", {"score_split": "dl19"})),
        (
            {"train": 9, "test": 9},
            {"train": 9},
            ("summary", True, "last", {"dev_from_train": 0.1, "score_split": "dev"}),
        ),
        ({"train": 9, "dev": 9, "test": 9}, {"train": 9, "dev": 9}, ("summary", True, "last", {"score_split": "dev"})),
        ({"train": 9, "dev": 9, "test": 9}, {"train": 9, "test": 9}, ("summary", True, "last", {})),
        ({"train": 9, "test": 9}, {"train": 9, "test": 9}, ("summary", True, "dev", {})),
        ({"train": 9, "dev": 9}, {"train": 9, "dev": 9}, ("summary", True, "last", {})),
        ({"train": 9}, {"train": 9}, ("summary", True, "last", {"dev_from_train": 0.1})),
        ({"train": 9, "test": 9}, {"test": 9}, ("baseline", False, "dev", {})),
    ],
)  # fmt: skip
def test_what_splits_allow(queries, positives, expected):
    allowed = choose_experiment(Look(queries=queries, positives=positives), zero_shot=True)
    assert (allowed.table, allowed.trains, allowed.choose, allowed.keys) == expected


def test_a_split_with_answers_and_no_judgements_is_scored_by_these():
    allowed = choose_experiment(Look(queries={"test": 9}, answered={"test": 9}), zero_shot=True)
    assert (allowed.table, allowed.keys) == ("summary", {"relevance": "answers"})


@pytest.fixture
def trained_on(here, documents):
    """`trained_on(subject, …)`: `init` of data whose training queries are of these subjects alone; its plan."""

    def init(splits, *subjects):
        shutil.rmtree(here / "data", ignore_errors=True)
        write_beir(here / "data", documents, splits)
        judged = here / "data/qrels/train.tsv"
        header, *lines = judged.read_text().splitlines(keepends=True)
        own = [line for line in lines if line.split("\t")[0].removeprefix("train-") in subjects]
        judged.write_text("".join([header, *own]))
        run(["init", "mine", "--data", "data", "--force"])
        return planned(Path("mine.yaml"))

    return init


@pytest.mark.parametrize("splits", [("train",), ("train", "test")])
def test_of_few_training_queries_so_many_become_dev_that_it_is_not_empty(trained_on, splits):
    # Drawn by the sha1 of train-otter and train-bat, which lie at 0.25 and 0.44 between 0 and 1, and of badger at 0.02
    for subjects, share in ((("otter", "bat"), 0.3), (("badger", "bat"), 0.1)):
        plan = trained_on(splits, *subjects)
        assert plan.planner.dataset("mine").values["dev_from_train"] == share


def test_of_one_training_query_no_dev_is_drawn(trained_on, capsys):
    plan = trained_on(("train", "test"), "otter")
    assert (
        "train has too few queries to draw dev from, so no checkpoint is chosen"
        in capsys.readouterr().out
    )
    assert plan.settings.models["ce_deneg"].train.choose == "last"
    with pytest.raises(
        UserError, match="1 training queries have a relevant passage; too few to draw dev from"
    ):
        trained_on(("train",), "otter")


def test_an_encoder_that_was_not_trained_for_retrieval_is_worth_no_row():
    allowed = choose_experiment(Look(queries={"test": 9}, positives={"test": 9}), zero_shot=False)
    assert (allowed.table, allowed.trains) == ("baseline", False)
    assert not find_starting_encoder("", "zh").zero_shot
    assert find_starting_encoder("", "en").zero_shot


def test_nothing_to_score_is_refused():
    with pytest.raises(UserError, match="no query has a relevant passage"):
        choose_experiment(Look(queries={"train": 9}), zero_shot=True)


@pytest.mark.parametrize(
    ("shares", "language"),
    [
        ({"zh": 0.9, "en": 0.1}, "zh"),
        ({"latin": 0.55, "en": 0.45}, "en"),
        ({"cyrillic": 1.0}, "en"),
        ({}, "en"),
    ],
)
def test_the_language_is_that_of_most_texts(shares, language):
    look = Look(languages={"passage": shares})
    assert guess_language(look) == language
    assert bool(look.notes) == ("cyrillic" in shares or not shares)


def test_analysed_languages_are_those_of_anserini():
    from tandem.retrieval.lexical.lucene import start_java

    analyzers = (
        start_java(1, None)("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()
    )
    assert set(ANALYZED.split()) == {"en", *analyzers}


def test_the_queries_that_become_dev_and_are_scored_are_not_too_many(here, documents):
    write_beir(here / "data", documents, splits=("train",))
    many = [{"_id": f"train-{i}", "text": "who is it"} for i in range(6000)]
    with open("data/queries.jsonl", "a") as file:
        file.writelines(json.dumps(query) + "\n" for query in many)
    with open("data/qrels/train.tsv", "a") as file:
        file.writelines(f"{query['_id']}\totter-1\t1\n" for query in many)
    run(["init", "mine", "--data", "data"])  # train alone: a tenth of 6,020 would be scored
    entry = yaml.safe_load(Path("mine.yaml").read_text())["datasets"]["mine"]
    assert entry["counts"]["train"] == 6020
    assert (entry["dev_from_train"], entry["dev_from_train_most"]) == (0.1, 500)
    assert "train_queries" not in entry  # all are searched for in seconds
    assert planned(Path("mine.yaml")).planner.dataset("mine").values["dev_from_train_most"] == 500


def test_a_gpu_is_asked_of_the_driver(gpu):
    machine = FoundMachine.here()
    assert (machine.gpu, machine.gpu_memory) == ("NVIDIA A10", 23028 << 20)
    assert str(machine).endswith("NVIDIA A10 with 22 GiB")


def test_a_gpu_computes_as_many_tokens_at_once_as_half_its_memory_holds():
    bert = EncoderShape(layers=12, hidden=768, feed_forward=3072, vocabulary=30522)
    each = bert.activations(1, 384)  # 12 · (17 · 768 + 2.5 · 384 · 12) · 2 bytes
    assert each == 12 * (17 * 768 + 2.5 * 384 * 12) * 2
    small = choose_execution(FoundMachine(8, 64 << 30, "A10", 24 << 30), bert, 384)
    assert small["graph_tokens"] * each <= 12 << 30 < 2 * small["graph_tokens"] * each
    assert small == {"micro_tokens": 16_384, "graph_tokens": 16_384, "hardware": "h200"}
    assert choose_execution(FoundMachine(2, 8 << 30), bert, 384) == {}


def test_the_gpu_of_a_machine_decides_batches_and_its_estimate(here, gpu, documents, capsys):
    write_beir(here / "data", documents)
    run(["init", "mine", "--data", "data"])
    assert "on one H200" in capsys.readouterr().out
    settings = planned(Path("mine.yaml")).settings
    assert (settings.execution.hardware, settings.models["ce_deneg"].train.list_size) == ("h200", 8)
    assert len(Path("mine.yaml").read_text().splitlines()) <= MOST_LINES


def test_a_model_of_the_hub_is_written_with_what_its_files_say(tmp_path, encoder_folder, documents):
    repository = tmp_path / "hub/models--org--mine"
    folder = repository / "snapshots" / ("0" * 40)
    shutil.copytree(encoder_folder, folder)
    parts = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{name}"}
        for name, path in parts.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("0" * 40)
    write_beir(tmp_path / "data", documents)
    env = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "tandem", "init", "mine", "--data", "data", "--encoder"]

    def run_command(name: str) -> tuple[str, dict]:
        done = subprocess.run(
            [*line, name, "--force"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, yaml.safe_load((tmp_path / "mine.yaml").read_text())

    page, written = run_command("org/mine")
    assert "encoder: mine: pooling mean, normalize true, temperature 0.05" in page
    shape = {"layers": 2, "hidden": 32, "feed_forward": 64}
    entry = written["encoders"]["mine"]
    assert (written["encoder"], entry["name"], entry["revision"]) == ("mine", "org/mine", "0" * 40)
    assert (entry["pooling"], entry["normalize"]) == ("mean", True)
    assert entry["shape"].items() >= shape.items()
    done = subprocess.run(
        [*line, "org/elsewhere", "--force"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "tandem init: encoder: how org/elsewhere makes a text's vector is not"
    )


def test_all_files_that_describe_an_encoder_are_fetched_from_the_hub():
    places = [
        "config.json",
        "modules.json",
        "1_Pooling/config.json",
        "router_config.json",
        "artifact.metadata",
    ]
    places += [
        "config_sentence_transformers.json",
        "document_0_Transformer/sentence_bert_config.json",
    ]
    weights = ["model.safetensors", "2_Dense/model.safetensors", "tokenizer.json"]
    assert [
        *filter_repo_objects([*places, *weights], allow_patterns=list_describing_files())
    ] == places


def test_values_stand_on_one_line_of_yaml():
    value = {"path": "a: b/c#d", "text": "x" * 200, "zh": "猫"}
    assert "\n" not in format_yaml(value)
    assert yaml.safe_load(format_yaml(value)) == value
    assert format_yaml("minilm") == "minilm"
