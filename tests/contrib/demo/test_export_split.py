"""The split of an exported run, where a dataset's source does not tell which it has before it is read."""

import pytest

from tandem.contrib.demo.export import require_counted_split
from tandem.errors import UserError
from tandem.plan.graph import Stage
from tandem.store.job import writing


def test_a_split_that_a_finished_dataset_lacks_is_refused(make_job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage = Stage("dataset", "mine", "mine", {"source": "beir", "fingerprint": "00"})
    require_counted_split(stage, "tset")  # it is not made: nobody knows
    with writing(make_job("dataset", tmp_path / stage.folder, stage.values)) as draft:
        draft.facts["queries"] = {"train": 3, "test": 2}
    require_counted_split(stage, "test")
    message = "^--split: tset is not a split of dataset mine; did you mean test"
    with pytest.raises(UserError, match=message):
        require_counted_split(stage, "tset")
