"""Stage `encoder`: the files that are taken, and what is refused."""

import hashlib
import json
import shutil
import subprocess

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

from tandem.errors import UserError
from tandem.models.folders import hash_files, hash_weights, list_fetched_files, list_weight_files
from tandem.models.hub import find_package, load_encoder
from tandem.models.published import run
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256


def test_folder_source_copies_model_and_tokenizer(encoder, encoder_folder):
    assert {
        "hf/config.json",
        "hf/model.safetensors",
        "hf/tokenizer.json",
    } <= encoder.manifest.files.keys()
    assert sha256(encoder.path("hf/model.safetensors")) == sha256(
        encoder_folder / "model.safetensors"
    )
    assert encoder.manifest.facts["weights_sha256"] == sha256(encoder_folder / "model.safetensors")


def test_other_weights_than_expected_are_refused(make_job, encoder_folder, tmp_path):
    params = {"source": "folder", "sha256": "0" * 64}
    job = make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(encoder_folder)})
    with pytest.raises(UserError, match="sha256 is .*, expected 0000"):
        run(job)
    assert not list(tmp_path.rglob("stage.json"))


def test_other_files_than_planned_are_refused(make_job, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    params = {"source": "folder", "files_sha256": hash_files(folder)}
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(UserError, match="mine: sha256 of its other files is .*, expected"):
        run(make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(folder)}))


def test_pickled_weights_are_refused(make_job, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(UserError, match="model.safetensors is missing .*pytorch_model.bin"):
        run(job)


def test_of_an_adapter_alone_the_line_says_to_merge_it(make_job, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    for missing in ("model.safetensors", "config.json"):
        (folder / missing).unlink(missing_ok=True)
        with pytest.raises(UserError, match=f"{missing} is missing .*merge it into its model"):
            run(job)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_download_that_broke_off_is_named_where_the_user_has_it(
    make_job, encoder_folder, tmp_path, name
):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    (folder / name).write_bytes((folder / name).read_bytes()[:400])
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    weights = "fetch its weights again" if name == "model.safetensors" else ""
    with pytest.raises(UserError, match=f"^{folder}: transformers cannot load it: .*{weights}"):
        run(job)


def test_a_value_of_the_configuration_that_transformers_refuses_is_one_line(
    make_job, encoder_folder, tmp_path
):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": "32"}))
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(UserError, match=f"^{folder}: transformers cannot load it: .*hidden_size"):
        run(job)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (
            None,
            r"mine: tokenizer.json is missing, and so are vocab.txt, .* .found: config.json, model.safetensors",
        ),
        (
            SPECIAL,
            "mine: its tokenizer has no word, only 5 special tokens; copy the tokenizer's files",
        ),
    ],
)
def test_a_tokenizer_without_words_is_refused(
    make_job, encoder_folder, tmp_path, vocabulary, message
):
    """transformers makes one in silence of a folder that has none."""
    folder = shutil.copytree(
        encoder_folder, tmp_path / "mine", ignore=shutil.ignore_patterns("*token*", "vocab*")
    )
    if vocabulary:
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(UserError, match=message):
        run(job)


@pytest.mark.parametrize(("rows", "fits"), [(900, False), (901, True)])
def test_a_token_far_behind_the_others_needs_a_vector(
    make_job, encoder_folder, tmp_path, rows, fits
):
    """Ids may leave a gap: the largest one decides, not how many there are."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["otter"] = 900
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = load_encoder(folder)
    model.resize_token_embeddings(rows, mean_resizing=False)
    model.save_pretrained(folder)
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    if fits:
        run(job)
    else:
        with pytest.raises(UserError, match="needs vectors for 901 ids, the model has 900"):
            run(job)


@pytest.mark.parametrize(
    "name", ["encoder.layer.0.output.dense.bias", "embeddings.word_embeddings.weight"]
)
def test_weights_that_make_nan_are_refused(make_job, encoder_folder, tmp_path, name):
    """Of a layer by the first texts that are tried; of words' vectors by those in the middle of the vocabulary."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    model = load_encoder(folder)
    weight = model.get_parameter(name)
    with torch.no_grad():
        weight[len(weight) // 2 :] = torch.nan
    model.save_pretrained(folder)
    options = {"path": str(folder), "vectors": {"pooling": "mean"}}
    job = make_job("encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, options)
    with pytest.raises(
        UserError, match=f"mine: the vector of a text holds nan, so does {name} among its weights"
    ):
        run(job)


def test_layers_beside_the_encoder_are_named_and_heads_of_tasks_are_not(
    make_job, encoder_folder, tmp_path
):
    """ANCE's published checkpoint has a layer behind RoBERTa, which no class of transformers has."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    names = ["bert.embeddings.position_ids", "cls.predictions.bias", "bert.pooler.dense.bias"]
    for more in ([], ["embeddingHead.weight", "norm.bias"]):
        weights = load_file(encoder_folder / "model.safetensors")
        weights = {f"bert.{name}": weight for name, weight in weights.items()}
        save_file(
            weights | {name: torch.zeros(32) for name in [*names, *more]},
            folder / "model.safetensors",
        )
        job = make_job(
            "encoder",
            tmp_path / f"e-{len(more):010d}",
            {"source": "folder"},
            {},
            {"path": str(folder)},
        )
        run(job)
        warnings = open_artifact(job.out).manifest.facts.get("warnings", [])
        assert [line.split("reads ")[1].split(";")[0] for line in warnings] == [
            f"{name} and 1 more" for name in more[:1]
        ]


def test_a_folder_that_does_not_exist_is_named(make_job, tmp_path):
    job = make_job(
        "encoder",
        tmp_path / "e-0123456789",
        {"source": "folder"},
        {},
        {"path": str(tmp_path / "none")},
    )
    with pytest.raises(UserError, match="none: config.json is missing .found: no such folder"):
        run(job)


def test_packages_are_found_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "a_model").mkdir()
    (tmp_path / "a_model" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_package("a_model", "weights") == tmp_path / "a_model" / "weights"
    with pytest.raises(UserError, match="the package no_such_model is not installed"):
        find_package("no_such_model", "weights")


@pytest.fixture
def sharded(encoder_folder, tmp_path):
    """The tiny encoder with its weights in several files, as transformers saves large models."""
    folder = shutil.copytree(encoder_folder, tmp_path / "large")
    (folder / "model.safetensors").unlink()
    load_encoder(encoder_folder).save_pretrained(folder, max_shard_size="50KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return folder


@pytest.mark.parametrize("layers", [None, 1])
def test_shards_are_the_same_encoder(make_job, encoder_folder, sharded, tmp_path, layers):
    params = {"source": "folder", "sha256": hash_weights(sharded), "layers": layers}
    run(make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(sharded)}))
    artifact = open_artifact(tmp_path / "e-0123456789")
    inputs = {"input_ids": torch.tensor([[5, 6, 7]])}
    states = [
        load_encoder(folder).eval()(**inputs).last_hidden_state
        for folder in (artifact.folder / "hf", sharded)
    ]
    assert torch.equal(*states) == (layers is None)
    whole = load_encoder(encoder_folder, layers).eval()(**inputs).last_hidden_state
    assert torch.equal(states[0], whole)
    assert len(list_weight_files(artifact.folder / "hf")) == (
        1 if layers else len(list_weight_files(sharded))
    )


@pytest.mark.parametrize("layers", [None, 1])
def test_shards_may_have_any_name_that_the_index_says(
    make_job, encoder_folder, sharded, tmp_path, layers
):
    index = sharded / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"model-', '"pytorch_model-'))
    for path in sharded.glob("model-*.safetensors"):
        path.rename(path.with_name(f"pytorch_{path.name}"))
    params = {"source": "folder", "sha256": hash_weights(sharded), "layers": layers}
    job = make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(sharded)})
    run(job)
    inputs = {"input_ids": torch.tensor([[5, 6, 7]])}
    copied = load_encoder(job.out / "hf").eval()(**inputs).last_hidden_state
    whole = load_encoder(encoder_folder, layers).eval()(**inputs).last_hidden_state
    assert torch.equal(copied, whole)
    shards = [file for file in open_artifact(job.out).manifest.files if "pytorch_model-" in file]
    assert len(shards) == (0 if layers else len(list_weight_files(sharded)))


def test_of_the_hub_such_shards_are_fetched_too():
    names = ["pytorch_model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin"]
    fetched = filter_repo_objects(names, allow_patterns=list_fetched_files())
    assert list(fetched) == names[:1]


def test_the_digest_of_shards_is_that_of_sha256sums_lines(make_job, sharded, tmp_path):
    names = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    lines = subprocess.run(
        ["sha256sum", *names], cwd=sharded, capture_output=True, check=True
    ).stdout
    assert hashlib.sha256(lines).hexdigest() == hash_weights(sharded)
    (shard, *_), before = list_weight_files(sharded), hash_weights(sharded)
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert hash_weights(sharded) != before
    params = {"source": "folder", "sha256": before}
    job = make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(sharded)})
    with pytest.raises(
        UserError, match=f"{names[0]} to {names[-1]}: sha256 is .*, expected {before}"
    ):
        run(job)


def test_a_shard_that_is_not_there_is_named(make_job, sharded, tmp_path):
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(sharded)}
    )
    last = list_weight_files(sharded)[-1]
    last.unlink()
    with pytest.raises(
        UserError, match=f"large: {last.name} is missing, which model.safetensors.index.json names"
    ):
        run(job)
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(UserError, match="index.json: names no shards"):
        run(job)
