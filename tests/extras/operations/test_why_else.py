"""`why` where inputs were deleted, and where one key was made twice."""

import shutil

from tandem.plan.graph import Stage


def test_an_input_that_was_deleted_is_told_by_its_key(chain, made, said):
    other = Stage("lucene", "toy", "zh", {"analyzer": "zh"}, {"dataset": chain["dataset"]})
    made.make(other)
    run = Stage("bm25", "toy", "bm25.test", chain["bm25"].params, {"dataset": chain["dataset"], "lucene": other})
    made.make(run)
    expected = f"{run.key} differs from {chain['bm25'].key}: its input lucene is {other.key}, was {chain['lucene'].key}"
    assert said("why", run.key)[1] == [expected]
    shutil.rmtree(made.folder(other))
    assert said("why", run.key)[1] == [expected.replace(other.key, f"{other.key} (deleted since)")]
    shutil.rmtree(made.folder(chain["lucene"]))
    assert said("why", run.key)[1] == [expected.replace(other.key, f"{other.key} (deleted since)") + " (deleted since)"]


def test_one_key_in_two_places(chain, made, said):
    run = chain["bm25"]
    shutil.copytree(made.root / "results", made.root / "elsewhere/results")
    copy = made.root / "elsewhere" / run.folder
    assert said("why", run.folder, copy)[1] == [f"{run.key} does not differ from {run.key}"]
    told = made.manifest(run)
    files = {"run.trec": {**told["files"]["run.trec"], "sha256": "0" * 64}}
    made.manifest(run, modules="0123456789", libraries={"numpy": "9"}, files=files)
    lines = said("why", run.folder, copy)[1]
    assert lines[0] == f"{run.key} does not differ from {run.key} in what decides its key, but:"
    assert f"  modules is '0123456789', was '{told['modules']}'" in lines
    assert lines[-1] == "  other bytes in run.trec"
