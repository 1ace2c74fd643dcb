"""The whole graph on a tiny collection, by Snakemake itself: first run, second run, override, shards, a killed job."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from messages import unknown_key
from tiny_project import LAYOUT, ROOT, TRAIN, Project, jobs, run_here, write_beir

from tandem.store.files import sha256

COLUMNS = [
    "system",
    "first_stage",
    "dataset",
    "split",
    "measure",
    "printed",
    "value",
    "low",
    "high",
    "change",
    "p",
    "mark",
    "stage",
    "name",
    "sd",
    "seeds",
    "verdict",
    "printed_dataset",
    "printed_split",
    "conclusion",
    "margin",
    "before",
]


@pytest.fixture(scope="module")
def project(tiny_dag):
    return tiny_dag


def test_the_tables_and_the_report_stand(project):
    rows = list(csv.DictReader((project.folder / "results/tables/tiny.csv").open()))
    assert list(rows[0]) == COLUMNS
    assert [(r["system"], r["measure"]) for r in rows[::2]] == [
        ("BM25", "RR@10"), ("Retriever", "RR@10"), ("Re-ranker", "RR@10")
    ]  # fmt: skip
    for row in rows:
        assert 0 <= float(row["low"]) <= float(row["value"]) <= float(row["high"]) <= 100
        assert list(project.folder.glob(f"results/tiny/*/{row['stage']}/run.trec"))
    # the three passages of a subject are told apart by what the query shares with them
    assert float(rows[0]["value"]) > 30
    for suffix in ("md", "tex", "html"):
        assert "Re-ranker" in (project.folder / f"results/tables/tiny.{suffix}").read_text()
    page = (project.folder / "results/report.html").read_text()
    assert "Re-ranker" in page
    assert "https://" not in page.split("</style>")[0]
    assert json.loads((project.folder / "results/configuration.json").read_text()) == [
        "config.yaml"
    ]


def test_every_stage_left_a_manifest_and_nothing_half_written(project):
    kinds = {path.parent.parent.name for path in project.folder.glob("results/*/*/*/stage.json")}
    assert kinds == {
        "dataset", "encoder", "tokens", "lucene", "bm25", "candidates", "model", "embeddings", "retrieve", "rerank",
        "score",
    }  # fmt: skip
    assert not list(project.folder.rglob(".partial*"))


def test_a_second_run_has_nothing_to_do(project):
    code, output = project.run()
    assert code == 0
    assert "Nothing to be done" in output


def test_snakemakes_own_report_has_the_page_and_the_tables(project):
    code, output = project.run("--report", "own.zip")
    assert code == 0, output
    with zipfile.ZipFile(project.folder / "own.zip") as archive:
        held = {
            Path(name).name: archive.read(name)
            for name in archive.namelist()
            if "/data/raw/" in name
        }
        index = archive.read("own/report.html").decode()
    assert held == {
        "tiny.html": (project.folder / "results/tables/tiny.html").read_bytes(),
        "report.html": (project.folder / "results/report.html").read_bytes(),
    }
    for words in (
        "The whole run on one page",
        "what the paper prints",
        "Passage retrieval on",
        "Tables",
        "Report",
    ):
        assert words in index


def test_snakemakes_lint_finds_nothing(project):
    code, output = project.run("--lint")
    assert code == 0, output


def test_a_second_seed_trains_again_and_shares_what_no_seed_touches(project):
    code, output = project.run("-n", "tiny", "--config", "seeds=[42, 7]")
    assert code == 0
    assert jobs(output) == {
        # both first models draw one list from BM25; the dual encoder's run on train feeds the joint model's
        "tiny": 1, "candidates": 2, "train": 3, "encode": 4, "retrieve": 2, "rerank": 1, "score": 2,
        "table": 1,
    }  # fmt: skip


def test_an_override_reruns_the_joint_model_and_what_follows(project, monkeypatch):
    override = ["--config", "models={rocketqav2: {train: {lr: 2e-4}}}"]
    code, output = project.run("-n", *override)
    assert code == 0
    assert jobs(output) == {
        "all": 1, "train": 1, "encode": 2, "retrieve": 1, "rerank": 1, "score": 2,
        "table": 1, "report": 1
    }  # fmt: skip
    before = project.files("stage.json")
    code, output = project.run(*override, "--until", "train")
    assert code == 0, output
    after = project.files("stage.json")
    assert before.items() < after.items()
    (new,) = [Path(path).parent.name for path in after.keys() - before.keys()]
    monkeypatch.chdir(project.folder)
    assert (
        "train.lr is 0.0002, was 0.001" in run_here([sys.executable, "-m", "tandem", "why", new])[1]
    )


@pytest.fixture
def copied(project, tmp_path):
    """The finished project once more, to be damaged."""
    shutil.copytree(project.folder, tmp_path / "copy", ignore=shutil.ignore_patterns(".snakemake"))
    return Project.at(tmp_path / "copy")


def test_a_table_follows_the_configuration_where_snakemakes_record_is_lost(copied):
    assert "Nothing to be done" in copied.run("-n", "tiny")[1]
    assert jobs(copied.run("-n", "tiny", "--config", "seeds=[42, 7]")[1])["train"] == 3
    (copied.folder / "tiny.yaml").write_text(yaml.safe_dump({**LAYOUT, "title": "Another title"}))
    other = ("results/tables/tiny.csv", "--config", f"tables=[{copied.folder}/tiny.yaml]")
    code, output = copied.run(*other)
    assert code == 0, output
    assert "Another title" in (copied.folder / "results/tables/tiny.md").read_text()
    shutil.rmtree(copied.folder / ".snakemake")
    assert "Nothing to be done" in copied.run("-n", *other)[1]
    assert jobs(copied.run("-n", "tiny")[1]) == {"table": 1, "tiny": 1}


def test_the_report_shows_the_tables_that_are_listed_now(project, tmp_path):
    """A table of the same systems that is left out, or comes first, makes no file newer than the report."""
    shutil.copytree(project.folder, tmp_path / "copy")
    copy = Project.at(tmp_path / "copy")
    (copy.folder / "again.yaml").write_text(yaml.safe_dump({**LAYOUT, "title": "Once more"}))
    tiny, again = f"{copy.folder}/tiny.yaml", f"{copy.folder}/again.yaml"
    code, output = copy.run("--config", f"tables=[{tiny}, {again}]")
    assert code == 0, output
    assert "Once more" in (copy.folder / "results/report.html").read_text()
    for listed in (f"tables=[{tiny}]", f"tables=[{again}, {tiny}]"):
        assert jobs(copy.run("-n", "--config", listed)[1]) == {"report": 1, "all": 1}


def test_two_shards_change_no_bit(project, copied):
    runs = project.files("run.trec") | project.files("run.parquet")
    blocks = project.files("blocks/*.npy")
    table = (project.folder / "results/tables/tiny.csv").read_bytes()
    assert len(blocks) > 6
    for kind in ("bm25", "retrieve", "rerank", "pairs", "score"):
        shutil.rmtree(copied.folder / "results/tiny" / kind)
    for folder in copied.folder.glob("results/tiny/embeddings/*.passages-*"):
        shutil.rmtree(folder)
    # models and training lists stand, so the runs they were made from are not made again
    (copied.folder / "results/tables/tiny.csv").unlink()
    code, output = copied.run(
        "tiny", "--config", "execution={shards: 2, search_memory: 16, engine: torch}"
    )
    assert code == 0, output
    assert "rule encode_shard" in output
    assert output.count("rule retrieve_shard") == 2 * len(
        list(copied.folder.glob("results/tiny/retrieve/*"))
    )
    assert output.count("rule bm25_shard") == 2 * len(
        list(copied.folder.glob("results/tiny/bm25/*"))
    )
    assert not list(copied.folder.glob("results/tiny/*/*/work"))
    assert output.count("rule rerank_shard") == 2
    shard_runs = copied.files("run.trec") | copied.files("run.parquet")
    assert shard_runs == {path: runs[path] for path in shard_runs}
    assert {path.split("/")[2] for path in shard_runs} == {"bm25", "retrieve", "rerank"}
    assert (copied.folder / "results/tables/tiny.csv").read_bytes() == table


def weights(folder):
    return {str(p.relative_to(folder)): sha256(p) for p in folder.rglob("*.safetensors")}


def test_a_killed_training_goes_on_and_ends_with_the_same_bits(project, copied):
    manifests = copied.folder.glob("results/tiny/model/rocketqav2-*/stage.json")
    (stage,) = [
        path
        for path in manifests
        if json.loads(path.read_text())["params"]["train"]["lr"] == TRAIN["lr"]
    ]
    there = weights(stage.parent)
    assert len(there) == 3  # the shared tower, the cross-encoder and its head
    shutil.rmtree(stage.parent)
    target = str(stage.relative_to(copied.folder))
    line = copied.line(target, "--config", "execution={checkpoint_seconds: 0}")
    running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 300
    while (
        not list(stage.parent.glob("checkpoints/step-*/state.json")) and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    # only the training under this project: its command line names the folder's stage
    processes = subprocess.run(
        ["pgrep", "-f", f"tandem model .*--out {target}"], capture_output=True, text=True
    )
    for pid in processes.stdout.split():
        if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python"):
            os.kill(int(pid), signal.SIGKILL)
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 0, output
    assert "resumes at step" in output
    assert weights(stage.parent) == there


def test_a_training_in_two_jobs_is_the_one_in_one_piece(project, copied):
    (there,) = copied.folder.glob("results/tiny/model/de_bm25neg-*")
    override = ["--config", "models={de_bm25neg: {train: {checkpoints: 2}}}"]
    shutil.rmtree(copied.folder / "results/tables")
    code, output = copied.run("-n", *override)
    assert code == 0, output
    (target,) = set(re.findall(r"results/tiny/model/de_bm25neg-[0-9a-f]{10}/stage.json", output))
    code, output = copied.run(target, *override)
    assert code == 0, output
    assert weights(copied.folder / target.removesuffix("/stage.json")) == weights(there)
    stages = sorted(copied.folder.glob("results/tiny/checkpoint/*"))
    assert [path.name.rpartition("-")[0] for path in stages] == ["de_bm25neg.1", "de_bm25neg.2"]
    # the states that were gone on from are removed, and nobody misses them
    assert not [path for path in stages if (path / "state").exists()]
    assert "Nothing to be done" in copied.run("-n", target, *override)[1]


def test_a_mistake_in_the_configuration_is_a_line_and_no_traceback(project):
    code, output = project.run("--config", "rerank={depht: 3}")
    assert code == 1
    assert unknown_key("rerank.depht", "depth") in output
    assert "Traceback" not in output


def test_bad_data_stops_before_anything_is_written(project, tmp_path):
    other = Project.at(tmp_path)
    shutil.copytree(project.folder / "beir", tmp_path / "beir")
    shutil.copy(project.folder / "tiny.yaml", tmp_path / "tiny.yaml")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config["datasets"]["tiny"]["path"] = str(tmp_path / "beir")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with (tmp_path / "beir/corpus.jsonl").open("a") as file:
        file.write('{"_id": "otter-1", "title": "", "text": "again"}\n')
    code, output = other.run("--until", "dataset")
    assert code == 1
    assert "otter-1" in output
    assert "Traceback" not in output
    assert not list(tmp_path.glob("results/tiny/dataset/*/*.parquet"))


@pytest.mark.parametrize(
    ("profile", "resources"),
    [("slurm", ["mem_mb=32000", "runtime=1440", "gpu=1"]), ("config/profiles/gpus", ["gpu=1"])],
)
def test_the_profiles_plan(profile, resources, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, output = run_here(
        [sys.executable, "-m", "snakemake", "--profile", profile, "-n", "--directory", tmp_path]
    )
    assert status == 0, output
    train = output[output.index("\nrule train:") :].split("\n\n")[0]
    assert [
        resource for resource in resources if not re.search(rf"[ ]{resource}(,|\n|$)", train)
    ] == []


QUESTIONS = {
    "q-owl": ("what eats voles", "beetles"),
    "q-eel": ("what eats shrimps", "mussels"),
    "q-new": ("who flies", "zz"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory, documents):
    """A project whose configuration is four lines, as a newcomer writes it, and some more datasets to choose from.

    Another passage has the text of the otter's first.
    """
    tmp_path = tmp_path_factory.mktemp("small")
    project = Project.at(tmp_path)
    write_beir(tmp_path / "beir", [*documents, ("copy", *documents[0][1:])])
    questions = tmp_path / "questions"
    questions.mkdir()
    lines = [json.dumps({"_id": name, "text": text}) for name, (text, _) in QUESTIONS.items()]
    (questions / "queries.jsonl").write_text("\n".join(lines) + "\n")
    lines = [
        json.dumps({"_id": name, "answers": [answer]}) for name, (_, answer) in QUESTIONS.items()
    ]
    (questions / "answers.jsonl").write_text("\n".join(lines) + "\n")
    datasets = {
        "mine": {"source": "beir", "path": str(tmp_path / "beir")},
        "again": {"source": "beir", "path": str(tmp_path / "beir")},
        "asked": {
            "source": "pair",
            "corpus_of": "mine",
            "path": str(questions),
            "relevance": "answers",
        },
        "both": {"source": "group", "of": ["mine", "again"]},
    }
    config = {"datasets": datasets, "dataset": "mine", "bm25": {"engine": "bm25s"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return project


def values(project, table, measure, system="BM25"):
    rows = csv.DictReader((project.folder / f"results/tables/{table}.csv").open())
    of = (measure, system)
    return {
        row["dataset"]: float(row["value"]) for row in rows if (row["measure"], row["system"]) == of
    }


def test_the_baseline_of_ones_own_data_of_answers_and_of_a_group(small):
    code, output = small.run("baseline")
    assert code == 0, output
    (mine,) = values(small, "baseline", "nDCG@10").values()
    # a group's `systems` are rows of its tables, which the report shows
    code, output = small.run(
        "report", "--config", "dataset=both", "systems=[bm25, bm25.whitespace]", "tables=[baseline]"
    )
    assert code == 0, output
    assert values(small, "baseline", "nDCG@10") == {"both": mine}
    assert set(values(small, "baseline", "nDCG@10", "bm25.whitespace")) == {"both"}
    code, output = small.run("baseline", "--config", "dataset=asked")
    assert code == 0, output
    # "voles" and "shrimps" stand in one passage each, which has the answer; nobody in the corpus is zz
    assert values(small, "baseline", "RR@10") == {"asked": pytest.approx(66.6667)}
    assert values(small, "baseline", "nDCG@10") == {}
    (matches,) = small.folder.glob("results/asked/match/*/matches.parquet")
    assert {row["doc_id"] for row in pq.read_table(matches).to_pylist() if row["relevant"]} == {
        "owl-3",
        "eel-3",
    }


def test_audits_without_models(small):
    override = "audits={judges: [], retriever: null, systems: [bm25]}"
    code, output = small.run("audits", "--config", override)
    assert code == 0, output
    rows = list(csv.DictReader((small.folder / "results/tables/audits.csv").open()))
    assert {row["audit"] for row in rows} == {"noise", "similar_queries", "false_negatives"}
    counts = {row["finding"]: row["count"] for row in rows if row["where"] == "corpus"}
    assert counts["passages that have such a text"] == "2"
    page = (small.folder / "results/audits.html").read_text()
    assert "Can mine be trusted?" in page
    assert page.count("<!doctype html>") == 1


def test_the_catalogue_and_the_statistics_need_no_network(small, tmp_path):
    home = {
        **os.environ,
        "IR_DATASETS_HOME": str(tmp_path / "home"),
        "TANDEM_DATA": str(tmp_path / "data"),
    }
    done = subprocess.run(
        small.line("datasets", "--quiet", "all"), capture_output=True, text=True, env=home
    )
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "here: " in lines["mine"]
    assert "8,841,823" in lines["msmarco"]
    assert "download 1.1 GB" in lines["msmarco"]
    assert "licence: " in lines["bioasq"]
    done = subprocess.run(small.line("statistics"), capture_output=True, text=True, env=home)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((small.folder / "results/statistics/survey_table4.csv").open()))
    assert {row["verdict"].split(" (")[0] for row in rows if row["dataset"] == "MS MARCO"} == {
        "not here"
    }
    assert len({row["dataset"] for row in rows}) == 29
