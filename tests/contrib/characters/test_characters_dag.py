"""A dual encoder over words' characters from a configuration: trained, self-taught, scored, and its card run."""

import copy
import csv
import re
import sys
from contextlib import chdir

import pytest
import torch
import yaml
from building import build_in
from tiny_project import ROOT, TRAIN, run_here, snakemake, tiny_config, write_beir

from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.extras.serving import require_pieces
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact

ENCODERS = {
    "own": {"source": "folder", "pooling": "mean"},
    "letters": {
        "source": "characters",
        "start": "own",
        "filters": [[1, 8], [2, 16], [3, 16]],
        "highway_layers": 1,
        "imitation": {"steps": 300, "words_per_batch": 32},
    },
}
DEFAULT = ("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")  # models that are left out
KINDS = ["drop", "double"]
MODELS = {
    "by_letters": {
        "objective": "dual",
        "init": "letters",
        "shared": True,
        "dataset": "typos",
        "candidates": {"from": "bm25", "depth": 20},
        "train": TRAIN | {"steps": 30, "choose": "last", "self_teaching": {"kinds": KINDS}},
    }
}


def make_config(folder, encoder_folder):
    config = tiny_config(folder, encoder_folder)
    encoders = copy.deepcopy(ENCODERS)
    encoders["own"]["path"] = str(encoder_folder)
    rows = [{"system": "Letters", "run": "by_letters"}, {"system": "Untrained", "run": "letters"}]
    rows.append({"system": "Broken", "run": "broken_letters"})
    layout = {"title": "Letters", "columns": [{"measure": "RR@10"}], "rows": rows}
    (folder / "letters.yaml").write_text(yaml.safe_dump(layout))
    return copy.deepcopy(config) | {
        "recipes": [],
        "encoder": "own",
        "encoders": encoders,
        "datasets": {
            **config["datasets"],
            "typos": {"source": "perturbed", "of": "tiny", "split": "train", "kinds": KINDS},
            "broken": {"source": "perturbed", "of": "tiny", "split": "test", "kinds": KINDS},
        },
        "perturbed": {"broken_letters": {"of": "by_letters", "dataset": "broken", "kind": "drop"}},
        "models": {**dict.fromkeys(DEFAULT), **copy.deepcopy(MODELS)},
        "tables": [str(folder / "letters.yaml")],
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    folder = tmp_path_factory.mktemp("letters")
    write_beir(folder / "beir", documents, ("train", "dev", "test"))
    (folder / "config.yaml").write_text(yaml.safe_dump(make_config(folder, encoder_folder)))
    build_in(folder, "all", "config.yaml")
    status, output = run_here(snakemake(folder, ["letters"]))
    assert status == 0, output
    return folder


def find(project, pattern):
    [artifact] = project.glob(f"results/{pattern}/stage.json")
    return open_artifact(artifact.parent)


def test_every_row_is_scored(project):
    with open(project / "results/tables/letters.csv") as table:
        values = {row["system"]: float(row["value"]) for row in csv.DictReader(table)}
    assert list(values) == ["Letters", "Untrained", "Broken"]
    assert all(0 < value < 100 for value in values.values()), values


def test_words_with_typos_have_characters_though_the_collection_lacks_them(project):
    broken = find(project, "broken/word_tokens/*")
    opened = Tokens.open(broken)
    words = [
        bytes(n - 1 for n in opened.template.words[at][1:-1].tolist())
        for at in range(5, len(opened.template.words))
    ]
    assert b"otter" in words
    # of a query with a typo alone
    assert {b"tter", b"ottr", b"otte", b"oter"} & {*words}


def test_the_cards_code_gives_the_vectors_that_are_searched(project):
    model = find(project, "typos/model/by_letters-*")
    text = (model.folder / "dual/shared/README.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict = {}
    with chdir(model.folder):
        exec(block, names)
    assert names["scores"].shape == (1, 1)
    tokens = Tokens.open(find(project, "tiny/word_tokens/*"))
    dual = DualEncoder.load(model.folder / "dual").eval()
    row = tokens.passages.take(torch.tensor([0]).numpy())
    stored = encode_all(dual, "passage", row, tokens.template, "fp32", 256)
    read, template = names["read_texts"](
        names["tokenizer"], ["The otter The otter is a river mammal."]
    )
    mine = dual.encode("passage", read, template, "fp32")
    torch.testing.assert_close(mine.detach(), stored, atol=1e-5, rtol=1e-4)


def test_what_reads_texts_by_a_vocabulary_is_refused(project):
    tokens = find(project, "tiny/word_tokens/*")
    with pytest.raises(UserError, match="holds words by their characters, which it does not read"):
        require_pieces(tokens, "it")
    for command in (["search", "by_letters", "an otter"], ["export", "by_letters", "--out", "out"]):
        line = [sys.executable, "-m", "tandem", *command, "config.yaml"]
        with chdir(project):
            status, output = run_here(line)
        assert status == 1
        assert "holds words by their characters" in output.splitlines()[-1], output


DUAL_ALONE = "reads words by their characters, which only dual encoders of one vector a text"
CROSS = {"objective": "cross", "init": "letters", "candidates": {"from": "bm25"}}
MULTI = {"models/by_letters/representation": "multi", "models/by_letters/train": TRAIN}
FURTHER = {"source": "pretrain", "objective": "mlm", "start": "letters"}
MISTAKES = [
    ({"models/by_letters": CROSS}, f"letters {DUAL_ALONE}"),
    (MULTI, f"letters {DUAL_ALONE}"),
    ({"encoders/further": FURTHER}, f"further {DUAL_ALONE}"),
    ({"encoders/letters/filters": [[0, 8]]}, r"filters.0 is \[0, 8\]; allowed: a width from 1 to 50"),
    ({"encoders/letters/start": "nowhere"}, "^encoders.letters.start: nowhere is unknown"),
    ({"encoders/letters/start": None}, "encoders.letters.start"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), MISTAKES, ids=[text[:40] for _, text in MISTAKES])
def test_mistakes(keys, message, tmp_path, encoder_folder, overridden, documents):
    write_beir(tmp_path / "beir", documents, ("train", "dev", "test"))
    config = overridden(make_config(tmp_path, encoder_folder), keys)
    with chdir(tmp_path), pytest.raises(UserError, match=message):
        FullPlan(config, ROOT).check("all")
