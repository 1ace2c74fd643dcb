"""What sentence-transformers' files say about an encoder's vectors is honoured, and nothing is guessed against them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_sparse import masked_lm_folder
from transformers import AutoModelForMaskedLM

from tandem.cli import run
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.models import published
from tandem.models.described import describe_towers
from tandem.models.dual import load_dual
from tandem.models.folders import find_longest_input
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape, describe_encoder
from tandem.models.tokens import Template
from tandem.plan.plan import Plan
from tandem.store import files
from tandem.store.files import sha256
from tandem.training.stage import run_untrained

ROOT = Path(__file__).parents[2]
TYPES = "sentence_transformers.models."
SHORT = {"lengths": {"query": 16, "passage": 64}}  # the tiny encoder has 96 positions


def describe(folder, pooling, *modules):
    """The files as sentence-transformers 2 to 4 write them."""
    listed = [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        *((f"2_{name}", name) for name in modules),
    ]
    types = {name: name if "." in name else TYPES + name for _, name in listed}
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": types[name]}
        for i, (path, name) in enumerate(listed)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, **pooling})
    )


CLS = {
    "pooling_mode_cls_token": True,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
}
MEAN = {
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}


def test_a_folder_without_modules_says_nothing(tmp_path):
    assert describe_towers(tmp_path) == {}


def test_pooling_and_normalisation_of_both_ages(tmp_path):
    for name, pooling in (("cls", CLS), ("mean", MEAN)):
        (tmp_path / name).mkdir()
        describe(tmp_path / name, pooling)
        # without a similarity of its own, sentence-transformers compares by the cosine
        assert describe_towers(tmp_path / name) == {
            "pooling": name,
            "normalize": True,
            "temperature": 0.05,
        }
    (tmp_path / "unit").mkdir()
    describe(tmp_path / "unit", MEAN, "Normalize")
    assert describe_towers(tmp_path / "unit") == {
        "pooling": "mean",
        "normalize": True,
        "temperature": 0.05,
    }
    describe_encoder(tmp_path / "ours", 32, DualShape(True, "mean", False, 1.0))
    assert describe_towers(tmp_path / "ours") == {"pooling": "mean"}


@pytest.mark.parametrize(
    ("pooling", "module", "message"),
    [
        (
            MEAN,
            "WordWeights",
            "modules.json: describes the module WordWeights, which is not computed here",
        ),
        (MEAN, "own.Normalize", "describes the module own.Normalize, which is not computed here"),
        (
            MEAN | {"pooling_mode_max_tokens": True},
            "Normalize",
            "describes the pooling mean [+] max",
        ),
        (
            {"pooling_mode": "mean_sqrt_len_tokens"},
            "Normalize",
            "describes the pooling mean_sqrt_len_tokens",
        ),
        ({"pooling_mode": None}, "Normalize", "1_Pooling/config.json: describes the pooling None"),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path, pooling, module, message):
    describe(tmp_path, pooling, module)
    with pytest.raises(UserError, match=message):
        describe_towers(tmp_path)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config_sentence_transformers.json", "prompts", ["query: "]),
        ("config_sentence_transformers.json", "truncate_dim", "64"),
        ("config_sentence_transformers.json", "default_prompt_name", ["query"]),
        ("sentence_bert_config.json", "modality_config", "text"),
    ],
)
def test_a_value_of_another_type_is_a_line_with_file_and_key(tmp_path, file, key, value):
    describe(tmp_path, MEAN)
    (tmp_path / file).write_text(json.dumps({key: value}))
    with pytest.raises(UserError, match=f"{file}: {key} is "):
        describe_towers(tmp_path)
    (tmp_path / file).write_text(json.dumps({key: None}))
    assert describe_towers(tmp_path)["pooling"] == "mean"


def test_the_file_about_inputs_has_an_older_name_too(tmp_path):
    describe(tmp_path, MEAN)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    (tmp_path / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 128}))
    assert find_longest_input(tmp_path) == 128
    (tmp_path / "sentence_roberta_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(UserError, match="sentence_roberta_config.json: describes do_lower_case"):
        describe_towers(tmp_path)
    # comes first
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert describe_towers(tmp_path)["pooling"] == "mean"


@pytest.fixture
def mine(encoder_folder, tmp_path):
    """A folder of one's own that pools by the mean and normalises."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    describe(folder, MEAN, "Normalize")
    return folder


def test_a_folder_is_planned_with_its_own_pooling(configured, mine, encoder_folder):
    def shape(**keys):
        config = (
            configured("encoder", keys.pop("encoder", "own"))
            | SHORT
            | {"encoders": {"own": keys} if keys else {}}
        )
        params = Plan(config, ROOT).planner.model("de_bm25neg", "here").values
        return params["pooling"], params["normalize"], params["temperature"]

    assert shape(encoder=str(encoder_folder)) == ("cls", False, 1.0)
    assert (
        shape(encoder=str(mine)) == shape(source="folder", path=str(mine)) == ("mean", True, 0.05)
    )
    # key by key
    assert shape(source="folder", path=str(mine), pooling="cls") == ("cls", True, 0.05)
    assert shape(source="folder", path=str(mine), normalize=False) == ("mean", False, 1.0)
    (mine / "1_Pooling/config.json").write_text(
        json.dumps({"pooling_mode": "mean_sqrt_len_tokens"})
    )
    assert shape(source="folder", path=str(mine), pooling="cls") == ("cls", False, 1.0)


@pytest.mark.parametrize("keys", [{}, {"pooling": "mean"}])
def test_a_folder_without_a_tokenizer_is_no_encoder(configured, mine, tmp_path, keys):
    (mine / "tokenizer.json").unlink()
    entries = {"encoders": {"own": {"source": "folder", "path": str(mine), **keys}}}
    (tmp_path / "own.yaml").write_text(json.dumps(entries))
    with pytest.raises(
        UserError,
        match="mine: tokenizer.json is missing, and so are vocab.txt, .* .found: 1_Pooling",
    ):
        Plan(configured("encoder", "own") | SHORT | entries, ROOT)
    with pytest.raises(UserError, match="mine: tokenizer.json is missing"):
        run(["encoder", "own", "--configfile", str(tmp_path / "own.yaml")])


def test_weights_of_a_folder_are_hashed_once_for_all_variants(configured, mine, monkeypatch):
    hashed = []
    monkeypatch.setattr(files, "sha256", lambda path: hashed.append(path) or sha256(path))
    config = configured("encoder", str(mine)) | SHORT | {"seeds": [1, 2, 3]}
    FullPlan(config, ROOT)
    assert hashed.count(mine / "model.safetensors") == 1
    assert len(hashed) == len({*hashed})  # the other files, too
    before = len(hashed)
    (mine / "model.safetensors").write_bytes(b"others")
    FullPlan(config, ROOT)
    assert hashed[before:] == [mine / "model.safetensors"]


@pytest.fixture
def hub(mine, tmp_path, monkeypatch):
    """The hub's cache with the folder as org/mine, at a commit, and no network."""
    from huggingface_hub import constants

    repository = tmp_path / "hub" / "models--org--mine"
    shutil.copytree(mine, repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_a_hub_name_is_planned_by_its_files_in_the_cache_or_not_at_all(configured, hub):
    def model(encoder):
        return Plan(configured("encoder", encoder) | SHORT, ROOT).planner.model(
            "de_bm25neg", "here"
        )

    params = model("org/mine").values
    assert (params["pooling"], params["normalize"], params["temperature"]) == ("mean", True, 0.05)
    with pytest.raises(
        UserError,
        match=r"how org/other makes a text's vector is not known .* say pooling: cls, mean, max",
    ):
        model("org/other")


def test_a_folder_or_a_hub_name_is_a_system_as_it_is(configured, hub, mine):
    config = configured() | SHORT | {"systems": [str(mine), "org/mine", "org/mine+ce_bm25neg"]}
    plan = Plan(config, ROOT)
    rows = {row.system: stage for row, stage in plan.tables["baseline"]}
    assert list(rows) == ["BM25", str(mine), "org/mine"]
    assert rows["org/mine"].upstream["run"].name == "mine.test"
    (ranked,) = [
        stage for row, stage in plan.tables["summary"] if row.id == ("ce_bm25neg", "org/mine")
    ]
    assert ranked.upstream["run"].name == "org_mine+ce_bm25neg.test"
    with pytest.raises(
        UserError, match="org/other makes a text's vector is not known on this machine"
    ):
        Plan(config | {"systems": ["org/other"]}, ROOT)
    # a path is no name of the hub
    with pytest.raises(UserError, match=r"\./other is unknown: .* no folder"):
        Plan(config | {"systems": ["./other"]}, ROOT)


def test_a_hub_name_of_the_catalogue_is_its_entry_with_its_prompts(configured, capsys):
    planner = Plan(configured(), ROOT).planner
    ours, theirs = (
        planner.run(name, "test", "here") for name in ("e5-small-v2", "intfloat/e5-small-v2")
    )
    assert ours.key == theirs.key
    model = theirs.upstream["passages"].upstream["model"]
    assert model.values["prompts"] == {"query": "query: ", "passage": "passage: "}
    assert run(["encoder", "intfloat/e5-small-v2"]) == 0
    assert 'encoders.e5-small-v2  {"query": "query: "' in capsys.readouterr().out


def test_the_command_says_what_is_chosen_and_by_whom(hub, mine, capsys, tmp_path):
    entries = {"tiny": {"source": "folder", "path": str(mine), "prompts": {"query": "query: "}}}
    (tmp_path / "own.yaml").write_text(json.dumps({"encoders": entries}))

    def shown(*words):
        assert run(["encoder", *words]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    files = ["its", "files"]
    expected = [
        ["source", "hub", "org/mine@main"],
        ["pooling", *files, '"mean"'],
        ["normalize", *files, "true"],
    ]
    assert shown("org/mine")[:3] == expected
    lines = shown("tiny", "--configfile", str(tmp_path / "own.yaml"))
    assert ["prompts", "encoders.tiny", '{"query":', '"query:', '"}'] in lines
    with pytest.raises(UserError, match="cannot fetch org/other at main from the hub"):
        run(["encoder", "org/other"])


@pytest.fixture
def plain_splade(encoder_folder, tmp_path):
    """A masked language model's folder with no file of sentence-transformers beside it."""
    return masked_lm_folder(tmp_path / "splade", encoder_folder)


@pytest.mark.parametrize(
    ("chosen", "pooling", "normalize"),
    [
        ("sparse", "max", False),
        ({"type": "multi", "dim": None}, "cls", True),
        ("coil", "max", False),
    ],
)
def test_a_representation_has_its_usual_pooling(
    configured, plain_splade, mine, capsys, tmp_path, chosen, pooling, normalize
):
    for folder in (plain_splade, mine):  # whose files say nothing, or how single vectors are made
        entries = {"own": {"source": "folder", "path": str(folder), "representation": chosen}}
        config = (
            configured("encoders", entries)
            | SHORT
            | {"systems": ["bm25+own"] if chosen == "coil" else ["own"]}
        )
        stages = Plan(config, ROOT).stages.values()
        params = next(
            stage.params for stage in stages if (stage.kind, stage.name) == ("untrained", "own")
        )
        assert (params.pooling, params.normalize, params.temperature) == (pooling, normalize, 1.0)
        (tmp_path / "own.yaml").write_text(json.dumps({"encoders": entries}))
        assert run(["encoder", "own", "--configfile", str(tmp_path / "own.yaml")]) == 0
        assert f'pooling representation "{pooling}"' in " ".join(capsys.readouterr().out.split())
    wrong = {"own": entries["own"] | {"pooling": "mean"}}
    with pytest.raises(
        UserError, match=r"encoders.own.pooling is mean, but the representation .* does not use it"
    ):
        Plan(configured("encoders", wrong) | SHORT, ROOT)


def test_a_plain_splade_folder_weighs_terms(configured, plain_splade, make_job, tmp_path):
    entries = {"own": {"source": "folder", "path": str(plain_splade), "representation": "sparse"}}
    config = configured("encoders", entries) | SHORT | {"systems": ["own"]}
    planned = {
        stage.kind: stage for stage in Plan(config, ROOT).stages.values() if stage.name == "own"
    }
    encoder, untrained = planned["encoder"], planned["untrained"]
    job = make_job(
        "encoder", tmp_path / "own-0000000001", encoder.values, {}, dict(encoder.execution)
    )
    published.run(job)
    made = make_job(
        "untrained", tmp_path / "own-0000000002", untrained.values, {"encoder": job.out}
    )
    run_untrained(made)
    model, tokenizer = load_dual(made.out / "dual").eval(), load_tokenizer(plain_splade)
    theirs = AutoModelForMaskedLM.from_pretrained(plain_splade).eval()
    with torch.no_grad():
        weights = model.encode("query", [np.array(tokenizer("an otter", add_special_tokens=False)["input_ids"])],
                               Template.of(tokenizer), "fp32")  # fmt: skip
        expected = (
            theirs(**tokenizer("an otter", return_tensors="pt")).logits.relu().log1p().amax(1)
        )
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize(
    "prompts", [{"passage": "passage: "}, {"document": "", "passage": "passage: "}]
)
def test_the_command_says_where_sentence_transformers_puts_no_prompt(
    mine, capsys, tmp_path, prompts
):
    (mine / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    for own in ({}, {"passage": ""}):
        entry = {"source": "folder", "path": str(mine), "prompts": own}
        (tmp_path / "own.yaml").write_text(json.dumps({"encoders": {"tiny": entry}}))
        assert run(["encoder", "tiny", "--configfile", str(tmp_path / "own.yaml")]) == 0
        line = "no document: passage is taken; sentence-transformers' encode_document puts none"
        assert (line in capsys.readouterr().out) == ("document" not in prompts and not own)


def test_the_command_says_which_prompts_are_of_no_side(mine, capsys, tmp_path):
    """As E5 Mistral has them: one a task."""
    prompts = {
        "web_search_query": "Instruct: find\nQuery: ",
        "sts_query": "Instruct: compare\nQuery: ",
        "query": "",
    }
    (mine / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    for own in ({}, {"query": prompts["web_search_query"]}):
        entry = {"source": "folder", "path": str(mine), "prompts": own}
        (tmp_path / "own.yaml").write_text(json.dumps({"encoders": {"tiny": entry}}))
        assert run(["encoder", "tiny", "--configfile", str(tmp_path / "own.yaml")]) == 0
        line = "prompts web_search_query, sts_query are of no side; say prompts: {query: …} in an entry"
        assert (line in capsys.readouterr().out) == (not own)
