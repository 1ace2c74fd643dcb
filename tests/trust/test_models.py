"""Models: safetensors alone, and no code that comes with one is run."""

import json
import shutil

import numpy as np
import pytest

from tandem.errors import UserError
from tandem.models.published import check_encoder


@pytest.fixture
def folder(encoder_folder, tmp_path):
    """An encoder to be tampered with."""
    return shutil.copytree(encoder_folder, tmp_path / "model")


def test_a_model_with_code_of_its_own_is_refused_and_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "m.C", "AutoModel": "m.M"},
        "architectures": ["M"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "m.py").write_text(f"open({str(folder / 'run')!r}, 'w')\n")
    with pytest.raises(
        UserError, match="needs code of its own, which is never run \\(trust_remote_code\\)"
    ):
        check_encoder(folder, folder)
    assert not (folder / "run").exists()


def test_an_unknown_family_is_a_line(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "mine", "architectures": ["M"]})
    )
    with pytest.raises(UserError, match=r"transformers cannot load it: .*mine") as caught:
        check_encoder(folder, folder)
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_not_taken_instead(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="only safetensors are loaded"):
        check_encoder(folder, folder)


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"\xff" * 64])
def test_weights_that_are_no_safetensors_are_a_line(folder, data):
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(UserError, match="cannot load it"):
        check_encoder(folder, folder)


class Trap:
    """What a pickle can do: call anything."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickled_array_is_refused(tmp_path):
    np.save(
        tmp_path / "x.npy", np.array([Trap(tmp_path / "sprung")], dtype=object), allow_pickle=True
    )
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "x.npy", mmap_mode=None, allow_pickle=False)
    assert not (tmp_path / "sprung").exists()
