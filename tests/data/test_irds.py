import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / ".." / "shared" / "data" / "ir_datasets_home"


def dataset(home: Path, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tandem", "dataset", "--params.source", "ir_datasets", *words]
    env = {**os.environ, "IR_DATASETS_HOME": str(home), "IR_DATASETS_SMALL_FILE_SIZE": "0"}
    return subprocess.run([*command, "--out", str(out / "stage.json")], env=env, capture_output=True, text=True)


def test_cranfield_loads_from_files_put_where_ir_datasets_looks(tmp_path):
    if not HOME.is_dir():
        pytest.skip(f"real data not here: {HOME}")
    home = tmp_path / "home"
    shutil.copytree(HOME, home)
    words = ["--params.id", "cranfield", "--params.splits.test", "cranfield"]
    done = dataset(home, tmp_path / "cranfield", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "cranfield" / "stage.json").read_text())
    assert told["passages"] == 1400
    assert told["queries"] == {"test": 225}
    assert told["qrels"] == {"test": 1837}
    assert "2 passages hold no text" in told["warnings"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--params.id", "no/such"], "splits: {}; at least one of train, dev, test with an ir_datasets id is needed"),
        (
            ["--params.id", "no/such", "--params.splits.test", "cranfield"],
            "id: ir_datasets knows no 'no/such'; its catalogue is on ir-datasets.com",
        ),
        (
            ["--params.id", "cranfield", "--params.splits.dev", "msmarco-passage"],
            "splits.dev: msmarco-passage of ir_datasets has no queries; name one that has",
        ),
        (["--params.splits.test", "cranfield"], "id: None; the id of an ir_datasets collection is needed"),
    ],
)
def test_wrong_ids_are_one_line(tmp_path, words, message):
    done = dataset(tmp_path / "home", tmp_path / "d", *words)
    assert (done.returncode, done.stderr) == (1, f"tandem dataset: {message}\n")
