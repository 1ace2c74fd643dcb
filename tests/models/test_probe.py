"""Encoders that cannot be pooled as configured, and tokenizers that leave their special tokens out."""

import json
import shutil

import pytest
import transformers
from safetensors.torch import load_file, save_file

from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.pair_prompts import PairOptions
from tandem.models.published import run

WORDS = "embeddings.word_embeddings.weight"
TOWERS = {"normalize": False, "temperature": 1.0}


def with_tokenizer(folder, out, kind, **changed):
    """A model of random weights beside the tokenizer of another folder."""
    words = load_tokenizer(folder)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    sizes |= {"vocab_size": len(words), "initializer_range": 0.3} | changed
    config = getattr(transformers, f"{kind}Config")(**sizes)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(out)
    words.save_pretrained(out)
    return out


def test_a_pooling_by_which_all_texts_get_one_vector_is_refused(family_folder, tmp_path):
    words = family_folder("bert")
    causal = with_tokenizer(words, tmp_path / "causal", "Qwen3", num_key_value_heads=2, head_dim=8)
    with pytest.raises(
        UserError,
        match="pooling is cls, but the first token of qwen3 sees nothing of the text; say",
    ):
        DualEncoder.start(causal, True, pooling="cls", **TOWERS)
    DualEncoder.start(causal, True, pooling="lasttoken", **TOWERS)
    bag = with_tokenizer(words, tmp_path / "bag", "Bert", num_hidden_layers=0)
    for pooling in ("cls", "lasttoken"):  # [CLS] and [SEP], which see no text without layers
        with pytest.raises(
            UserError, match=f"pooling is {pooling}, but .* of bert sees nothing of the text; say"
        ):
            DualEncoder.start(bag, True, pooling=pooling, **TOWERS)
    DualEncoder.start(bag, True, pooling="mean", **TOWERS)


def test_a_prompt_s_first_token_must_see_the_texts_too(family_folder, tmp_path):
    words = family_folder("bert")
    causal = with_tokenizer(words, tmp_path / "causal", "Qwen3", num_key_value_heads=2, head_dim=8)
    prompt = PairOptions("the {query} and {passage} :")
    with pytest.raises(
        UserError, match="pooling is cls, but the first token of qwen3 sees nothing"
    ):
        CrossEncoder.start(causal, "cls", prompt)
    CrossEncoder.start(causal, "lasttoken", prompt)
    # its tokenizer puts no token before a text, but the prompt does
    CrossEncoder.start(family_folder("t5"), "cls", prompt)


def test_missing_special_tokens_are_refused(family_folder, make_job, tmp_path):
    folder = shutil.copytree(family_folder("bert"), tmp_path / "without")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "cls_token": "[CLS]",
                "sep_token": "[SEP]",
            }
        )
    )
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(UserError, match=r"has \[CLS\] and \[SEP\], but puts neither around a text"):
        run(job)
    with pytest.raises(UserError, match="puts no token between two texts"):
        CrossEncoder.start(folder, "mean")
    with pytest.raises(
        UserError, match="pooling is cls, but its tokenizer puts no token before a text"
    ):
        DualEncoder.start(folder, True, pooling="cls", **TOWERS)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda tensors: {f"auto_model.{name}": tensor for name, tensor in tensors.items()},
            "its weights lack ",
        ),
        (
            lambda tensors: {name: tensors[name] for name in tensors if "layer.1." not in name},
            "lack encoder.layer.1",
        ),
        (
            lambda tensors: tensors | {WORDS: tensors[WORDS][1:].clone()},
            f"hold {WORDS} of another shape",
        ),
    ],
    ids=["of a wrapper's names", "a layer is not there", "of another vocabulary"],
)
def test_weights_that_would_be_random_are_refused(family_folder, make_job, tmp_path, change, line):
    folder = shutil.copytree(family_folder("bert"), tmp_path / "changed")
    save_file(
        change(load_file(folder / "model.safetensors")),
        folder / "model.safetensors",
        {"format": "pt"},
    )
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(UserError, match=line):
        run(job)
    assert not (job.out / "stage.json").exists()
