"""Template against what the tokenizer itself writes around texts and pairs."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tandem.errors import UserError
from tandem.models.hub import hash_tokenizer, load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template

TEXTS = ["the otter", "", "what does the badger eat in autumn, when winter is close?", "ü"]


@pytest.fixture(scope="module", params=["bert", "roberta-like", "without segments"])
def tokenizer(request, encoder_folder):
    """The tiny BERT tokenizer, and variants whose special tokens stand as in other families."""
    variant = load_tokenizer(encoder_folder)
    cls, sep = variant.cls_token_id, variant.sep_token_id
    if request.param == "roberta-like":
        variant.backend_tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] [SEP] $B [SEP]",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
        )
    if request.param == "without segments":
        variant.model_input_names = ["input_ids", "attention_mask"]
    return variant


def ids(tokenizer, texts):
    return [
        np.array(row, np.uint16) for row in tokenizer(texts, add_special_tokens=False)["input_ids"]
    ]


def test_single_texts_equal_the_tokenizers_own_output(tokenizer):
    inputs = Template.of(tokenizer).single_inputs(ids(tokenizer, TEXTS)).to_tensors()
    expected = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert inputs.keys() == expected.keys()
    for name, tensor in expected.items():
        assert inputs[name].tolist() == tensor.tolist(), name


def test_pairs_equal_the_tokenizers_own_output(tokenizer):
    first, second = TEXTS, TEXTS[::-1]
    inputs = (
        Template.of(tokenizer)
        .pair_inputs(*(Ragged.of(ids(tokenizer, texts)) for texts in (first, second)))
        .to_tensors()
    )
    expected = tokenizer(first, second, padding=True, return_tensors="pt")
    assert inputs.keys() == expected.keys()
    for name, tensor in expected.items():
        assert inputs[name].tolist() == tensor.tolist(), name


def test_template_survives_json(tokenizer):
    template = Template.of(tokenizer)
    assert (
        TypeAdapter(Template).validate_python(json.loads(json.dumps(asdict(template)))) == template
    )
    single, pair = template.extra
    assert single == len(tokenizer("")["input_ids"])
    text = len(ids(tokenizer, ["otter"])[0])
    assert pair == len(tokenizer("otter", "otter")["input_ids"]) - 2 * text


def test_tokenizer_digest_forgets_truncation_and_survives_saving(encoder_folder, tmp_path):
    tokenizer = load_tokenizer(encoder_folder)
    before = hash_tokenizer(tokenizer.backend_tokenizer.to_str())
    tokenizer(["the otter"], truncation=True, max_length=4, padding=True)
    tokenizer.save_pretrained(tmp_path)
    assert hash_tokenizer((tmp_path / "tokenizer.json").read_text()) == before
    again = load_tokenizer(tmp_path)
    assert hash_tokenizer(again.backend_tokenizer.to_str()) == before
    again.add_tokens(["wombat"])
    assert hash_tokenizer(again.backend_tokenizer.to_str()) != before


def test_padding_to_a_multiple(encoder_folder):
    tokenizer = load_tokenizer(encoder_folder)
    texts = ids(tokenizer, TEXTS)
    exact, padded = (
        Template.of(tokenizer).single_inputs(texts).to_tensors(multiple) for multiple in (1, 8)
    )
    width = exact["input_ids"].shape[1]
    assert width % 8
    assert padded["input_ids"].shape[1] == (width // 8 + 1) * 8
    assert padded["input_ids"][:, :width].tolist() == exact["input_ids"].tolist()
    assert padded["attention_mask"].sum() == exact["attention_mask"].sum()


def test_a_tokenizer_that_makes_nothing_of_letters_is_refused():
    # without a token for what it does not know
    words = Tokenizer(models.BPE({"[CLS]": 0, "[SEP]": 1, "水": 2}, []))
    special = [("[CLS]", 0), ("[SEP]", 1)]
    words.post_processor = TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", special)
    with pytest.raises(UserError, match="makes no token of 'a'"):
        Template.of(PreTrainedTokenizerFast(tokenizer_object=words))
