"""What a word of a command line stands for: rows over several seeds, rows of sweeps, two rows compared."""

import json
import shutil

import pytest

from tandem.cli import run
from tandem.errors import UserError
from tandem.extras.sweep_results import SweepLine, SweepResult, read_result
from tandem.plan.graph import Stage
from tandem.report.results import Origin


def system(project, data, name, seed, lr=1e-5):
    """model → run → score of a system, finished; the score."""
    model = Stage(
        "model",
        "toy",
        name,
        {"objective": "dual", "seed": seed, "train": {"lr": lr}},
        {"dataset": data},
    )
    run = Stage(
        "retrieve", "toy", f"{name}.test", {"depth": 20}, {"dataset": data, "passages": model}
    )
    score = Stage(
        "score",
        "toy",
        f"{name}.test",
        {"measures": ["RR@10"], "split": "test"},
        {"dataset": data, "run": run},
    )
    for stage in (model, run, score):
        project.make(stage)
    return score


@pytest.fixture
def seeds(chain, project, write_table):
    """A table: BM25, and a dual encoder and another one of two seeds each."""
    rows = {
        name: [system(project, chain["dataset"], name, seed, lr) for seed in (1, 2)]
        for name, lr in SYSTEMS.items()
    }
    write_table(
        "tiny", ("BM25", chain["score"]), *((name, *scores) for name, scores in rows.items())
    )
    return rows


SYSTEMS = {"de": 1e-5, "ance": 2e-5}


@pytest.mark.parametrize(
    "word", ['tiny:BM25 "b=1"', "tiny:'BM25 \"b=1\"'", 'tiny:"BM25 "b=1""', 'tiny:BM25 "b=1":RR@10']
)
def test_quotes_around_a_name_may_be_its_own(chain, write_table, run_command, word):
    write_table("tiny", ('BM25 "b=1"', chain["score"]))
    status, lines = run_command("lineage", word)
    assert (status, lines[0].startswith('tiny: BM25 "b=1"')) == (0, True)


def test_a_number_over_seeds_has_the_lineage_of_each(seeds, chain, run_command):
    _, lines = run_command("lineage", "tiny:de:RR@10")
    text = "\n".join(lines)
    assert lines[0] == "tiny: de: MRR@10 (RR@10) = 12.34"
    for score in seeds["de"]:
        assert sum(line == f"score {score.key}" for line in lines) == 1
        assert f"model {score.upstream['run'].upstream['passages'].key}" in text
    assert text.count("source=") == 1  # the collection of both is spelled out once
    assert lines[-1].startswith("7 stages, ")
    lineage = json.loads("\n".join(run_command("lineage", "tiny:de", "--json")[1]))
    assert lineage["of"] == [score.key for score in seeds["de"]]


@pytest.fixture
def sweep(seeds, project):
    """A sweep over the learning rate, of two seeds at each point."""
    lines = []
    for scores, lr in zip(seeds.values(), SYSTEMS.values(), strict=True):
        keys = [score.upstream["run"].key for score in scores]
        for measure, value in (("RR@10", 41.5), ("nDCG@10", 45.25)):
            point = {"models.de.train.lr": lr, "bm25.k1": 0.9}
            lines.append(
                SweepLine(point, "DE", measure, 2, value, 0.1, 40, 43, None, None, None, keys)
            )
    words = {
        "name": "lr",
        "title": "lr",
        "paths": ["models.de.train.lr", "bm25.k1"],
        "x": "",
        "scale": "log",
    }
    rest = {
        "dataset": "toy",
        "split": "test",
        "stands_in_for": "",
        "queries": 20,
        "measures": ["RR@10", "nDCG@10"],
    }
    result = SweepResult(**words, baseline=lines[0].point, note="", **rest, lines=lines, runs={})
    for views in ("results", "results/mine"):
        path = project.root / views / "sweeps/lr.json"
        path.parent.mkdir(parents=True)
        path.write_text(result.to_json())


@pytest.mark.parametrize(
    "row", ["DE at de.lr 2e-05, bm25.k1 0.9", '"DE at de.lr=2e-05, bm25.k1=0.9"']
)
def test_a_row_of_a_sweep_leads_to_its_runs(sweep, seeds, run_command, row):
    _, lines = run_command("lineage", f"sweeps/lr:{row}:nDCG@10")
    assert lines[0] == "sweeps/lr: DE at de.lr 2e-05, bm25.k1 0.9: nDCG@10 = 45.25"
    runs = [score.upstream["run"].key for score in seeds["ance"]]
    assert [line for line in lines if line.startswith("retrieve ")] == [
        f"retrieve {key}" for key in runs
    ]


def test_a_run_of_a_sweep_that_another_dataset_has_too_is_found(sweep, seeds, project, run_command):
    """As where a configuration of the same data names the dataset otherwise."""
    path = project.root / "results/sweeps/lr.json"
    runs = [score.upstream["run"] for scores in seeds.values() for score in scores]
    origins = {run.key: Origin("", run.key, run.folder) for run in runs}
    path.write_text(read_result(path).model_copy(update={"runs": origins}).to_json())
    shutil.rmtree(project.root / "results/mine")
    shutil.copytree(project.root / "results/toy", project.root / "results/twin")
    row = "sweeps/lr:DE at de.lr 2e-05, bm25.k1 0.9"
    assert run_command("lineage", row)[1][-1].startswith("5 stages, ")
    assert not any("sweep lr" in line for line in run_command("check")[1])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "sweeps/lr",
            "sweeps/lr: is a sweep; name a row, sweeps/lr:ROW:COLUMN; it has DE at de.lr 1e-05, bm25.k1 0.9",
        ),
        (
            "mine/sweeps/lr",
            "mine/sweeps/lr: is a sweep; name a row, mine/sweeps/lr:ROW:COLUMN; it has DE at de.lr",
        ),
        (
            "sweeps/lr:DE at de.lr 3e-05, bm25.k1 0.9",
            "has no row DE at de.lr 3e-05.*did you mean DE at de.lr",
        ),
        (
            "sweeps/lr:DE at de.lr 1e-05, bm25.k1 0.9:AP",
            "AP is not a measure; allowed: RR@10, nDCG@10",
        ),
        (
            "sweeps/nothing:DE",
            r"results/sweeps/nothing\.json: no such file; `snakemake sweep_nothing` writes it",
        ),
        (".", "no finished artifact"),
        ("", "no finished artifact"),
        ("*", "no finished artifact"),
    ],
)
def test_what_is_not_there_is_a_line(sweep, word, message):
    with pytest.raises(UserError, match=message):
        run(["lineage", word])


def test_two_rows_are_told_apart_down_to_their_models(seeds, run_command):
    ance, de = (seeds[name][0].upstream["run"].upstream["passages"].key for name in ("ance", "de"))
    (line,) = run_command("why", "tiny:ance:RR@10", "tiny:de")[1]
    # of the same seed
    assert line.endswith(f": model {ance} differs from {de}: train.lr is 2e-05, was 1e-05")
    assert line.startswith(f"{seeds['ance'][0].key} differs from {seeds['de'][0].key}: ")


def test_two_kinds_of_systems_differ_in_their_run(seeds, chain, run_command):
    lines = run_command("why", "tiny:de", "tiny:BM25")[1]
    assert any(
        line.endswith(
            f"its input run is {seeds['de'][0].upstream['run'].key}, was {chain['bm25'].key}"
        )
        for line in lines
    )


def test_many_differences_are_told_stage_by_stage(project, chain, run_command):
    names = ("lr", "steps", "warmup", "clip")
    models = [
        Stage("model", "toy", "de", dict.fromkeys(names, n), {"dataset": chain["dataset"]})
        for n in (1, 2)
    ]
    runs = [
        Stage("retrieve", "toy", "de.test", {"depth": 7}, {"passages": model}) for model in models
    ]
    for stage in (*models, *runs):
        project.make(stage)
    assert run_command("why", runs[1].key, runs[0].key)[1] == [
        f"{runs[1].key} differs from {runs[0].key}:",
        f"  model {models[1].key} differs from {models[0].key}:",
        *(f"    {name} is 2, was 1" for name in names),
    ]


def test_values_that_only_keys_tell_apart_are_told(project, run_command):
    first, second = (Stage("imported", "toy", "s", {"at": value}) for value in (1, True))
    assert first.key != second.key
    for stage in (first, second):
        project.make(stage)
    assert run_command("why", first.key, second.key)[1] == [
        f"{first.key} differs from {second.key}: at is 1, was True"
    ]
