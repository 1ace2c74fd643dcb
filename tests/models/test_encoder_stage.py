"""Stage `encoder`: the files that are taken, and what is refused."""

import shutil

import pytest

from tandem.errors import UserError
from tandem.models.hub import package_folder, run
from tandem.store.files import sha256


def test_folder_source_copies_model_and_tokenizer(encoder, encoder_folder):
    assert {"hf/config.json", "hf/model.safetensors", "hf/tokenizer.json"} <= encoder.manifest.files.keys()
    assert sha256(encoder.path("hf/model.safetensors")) == sha256(encoder_folder / "model.safetensors")
    assert encoder.manifest.facts["weights_sha256"] == sha256(encoder_folder / "model.safetensors")


def test_other_weights_than_expected_are_refused(make_job, encoder_folder, tmp_path):
    params = {"source": "folder", "sha256": "0" * 64}
    job = make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(encoder_folder)})
    with pytest.raises(UserError, match="sha256 is .*, expected 0000"):
        run(job)
    assert not list(tmp_path.rglob("stage.json"))


def test_pickled_weights_are_refused(make_job, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    job = make_job("encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)})
    with pytest.raises(UserError, match="model.safetensors is missing .*pytorch_model.bin"):
        run(job)


def test_a_folder_that_does_not_exist_is_named(make_job, tmp_path):
    job = make_job("encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(tmp_path / "none")})
    with pytest.raises(UserError, match="none: config.json is missing .found: no such folder"):
        run(job)


def test_packages_are_found_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "a_model").mkdir()
    (tmp_path / "a_model" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_folder("a_model", "weights") == tmp_path / "a_model" / "weights"
    with pytest.raises(UserError, match="the package no_such_model is not installed"):
        package_folder("no_such_model", "weights")
