"""`why` where inputs were deleted, and where one key was made twice."""

import shutil

from tandem.plan.graph import Stage


def test_an_input_that_was_deleted_is_told_by_its_key(chain, project, run_command):
    other = Stage("lucene", "toy", "zh", {"analyzer": "zh"}, {"dataset": chain["dataset"]})
    project.make(other)
    run = Stage(
        "bm25",
        "toy",
        "bm25.test",
        chain["bm25"].params,
        {"dataset": chain["dataset"], "lucene": other},
    )
    project.make(run)
    expected = f"{run.key} differs from {chain['bm25'].key}: its input lucene is {other.key}, was {chain['lucene'].key}"
    assert run_command("why", run.key)[1] == [expected]
    shutil.rmtree(project.folder(other))
    assert run_command("why", run.key)[1] == [
        expected.replace(other.key, f"{other.key} (deleted since)")
    ]
    shutil.rmtree(project.folder(chain["lucene"]))
    assert run_command("why", run.key)[1] == [
        expected.replace(other.key, f"{other.key} (deleted since)") + " (deleted since)"
    ]


def test_one_key_in_two_places(chain, project, run_command):
    run = chain["bm25"]
    shutil.copytree(project.root / "results", project.root / "elsewhere/results")
    copy = project.root / "elsewhere" / run.folder
    assert run_command("why", run.folder, copy)[1] == [f"{run.key} does not differ from {run.key}"]
    manifest = project.manifest(run)
    files = {"run.trec": {**manifest["files"]["run.trec"], "sha256": "0" * 64}}
    project.manifest(run, modules="0123456789", libraries={"numpy": "9"}, files=files)
    lines = run_command("why", run.folder, copy)[1]
    assert lines[0] == f"{run.key} does not differ from {run.key} in what decides its key, but:"
    assert f"  modules is '0123456789', was '{manifest['modules']}'" in lines
    assert lines[-1] == "  other bytes in run.trec"
