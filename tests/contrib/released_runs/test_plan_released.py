"""Released runs in a plan: they stand where a system does."""

from pathlib import Path

import pytest

from tandem.contrib.released_runs.plan import import_run
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]


def test_a_released_run_stands_where_a_system_does(beir, plan_of, tmp_path):
    file = tmp_path / "released.tsv"
    file.write_text("d\td\t1\n")
    entry = {"d": {"source": "beir", "path": str(beir)}}
    runs = {"theirs": {"format": "ranks", "paths": {"test": str(file)}}}
    planned = plan_of(entry, "d", runs=runs)
    run = planned.planner.score("theirs", "here").upstream["run"]
    assert (run.kind, run.values["format"], run.execution["path"]) == (
        "imported",
        "ranks",
        str(file),
    )
    with pytest.raises(
        UserError, match=r"runs.theirs.paths.dev: missing; splits with a file: test"
    ):
        import_run(planned.planner.ctx, "theirs", "dev", "d")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, "runs.x has neither paths nor stage; say one of them"),
        (
            {"paths": {"test": "r.run"}, "of": "nobody"},
            "runs.x.of is of a stage, but this run has files; leave it out",
        ),
        (
            {"paths": {"test": "r.run"}, "params": {"a": 1}},
            "runs.x.params is of a stage, but this run has files; leave it out",
        ),
        (
            {"stage": "fuse", "paths": {"test": "r.run"}},
            "runs.x.paths is of files, but stage writes this run; leave it out",
        ),
        (
            {"stage": "fuse", "format": "ranks"},
            "runs.x.format is of files, but stage writes this run; leave it out",
        ),
        (
            {"stage": "fuse", "ties": "trec_eval"},
            "runs.x.ties is of files, but stage writes this run; leave it out",
        ),
    ],
)
def test_keys_of_files_and_of_stages_do_not_stand_together(configured, keys, line):
    with pytest.raises(UserError) as error:
        Plan({**configured(), "runs": {"x": keys}}, ROOT)
    assert str(error.value) == line
