"""What sentence-transformers' files say about an encoder's vectors is honoured, and nothing is guessed against them."""

import json
import shutil
from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.models.described import described_towers
from tandem.models.saving import describe_encoder
from tandem.store import files
from tandem.store.files import sha256

ROOT = Path(__file__).parents[2]
TYPES = "sentence_transformers.models."


def describe(folder, pooling, *modules):
    """The files as sentence-transformers 2 to 4 write them."""
    listed = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"2_{name}", name) for name in modules)]
    rows = [{"idx": i, "name": str(i), "path": path, "type": TYPES + name} for i, (path, name) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))


CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}


def test_a_folder_without_modules_says_nothing(tmp_path):
    assert described_towers(tmp_path) == {}


def test_pooling_and_normalisation_of_both_ages(tmp_path):
    for name, pooling in (("cls", CLS), ("mean", MEAN)):
        (tmp_path / name).mkdir()
        describe(tmp_path / name, pooling)
        assert described_towers(tmp_path / name) == {"pooling": name}
    (tmp_path / "unit").mkdir()
    describe(tmp_path / "unit", MEAN, "Normalize")
    assert described_towers(tmp_path / "unit") == {"pooling": "mean", "normalize": True, "temperature": 0.05}
    describe_encoder(tmp_path / "ours", 32, "mean", normalize=False)
    assert described_towers(tmp_path / "ours") == {"pooling": "mean"}


@pytest.mark.parametrize(
    ("pooling", "module", "told"),
    [
        (MEAN, "Dense", "modules.json: describes the module Dense, which is not computed here"),
        (MEAN | {"pooling_mode_max_tokens": True}, "Normalize", "describes the pooling mean_tokens [+] max_tokens"),
        ({"pooling_mode": "lasttoken"}, "Normalize", "describes the pooling lasttoken"),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path, pooling, module, told):
    describe(tmp_path, pooling, module)
    with pytest.raises(UserError, match=told):
        described_towers(tmp_path)


@pytest.fixture
def mine(encoder_folder, tmp_path):
    """A folder of one's own that pools by the mean and normalises."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    describe(folder, MEAN, "Normalize")
    return folder


def test_a_folder_is_planned_with_its_own_pooling(configured, mine, encoder_folder):
    def shape(**keys):
        config = configured("encoder", keys.pop("encoder", "own")) | {"encoders": {"own": keys} if keys else {}}
        params = FullPlan(config, ROOT).planner.model("de_bm25neg", "here").values
        return params["pooling"], params["normalize"], params["temperature"]

    assert shape(encoder=str(encoder_folder)) == ("cls", False, 1.0)
    assert shape(encoder=str(mine)) == shape(source="folder", path=str(mine)) == ("mean", True, 0.05)
    assert shape(source="folder", path=str(mine), pooling="cls") == ("cls", False, 1.0)


def test_weights_of_a_folder_are_hashed_once_for_all_variants(configured, mine, monkeypatch):
    hashed = []
    monkeypatch.setattr(files, "sha256", lambda path: hashed.append(path) or sha256(path))
    config = configured("encoder", str(mine)) | {"seeds": [1, 2, 3]}
    FullPlan(config, ROOT)
    assert hashed == [mine / "model.safetensors"]
    (mine / "model.safetensors").write_bytes(b"others")
    FullPlan(config, ROOT)
    assert len(hashed) == 2
