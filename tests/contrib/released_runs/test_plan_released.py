"""Released runs in a plan: they stand where a system does."""

import pytest

from tandem.contrib.released_runs.plan import import_run
from tandem.errors import UserError


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
