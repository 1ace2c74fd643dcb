"""Cross-encoders that score by what a decoder writes, and by prompts, against transformers' reading of the prompt."""

import json
import re

import numpy as np
import pytest
import torch

from tandem.config.models import MONO_T5
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.extras.usage import InputLengths, describe_cross_usage
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, read_cross
from tandem.models.hub import load_tokenizer
from tandem.models.pair_prompts import PairOptions
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template

TEXTS = [
    ("what does the lynx eat", "The lynx eats hares and roe deer."),
    ("what does the lynx eat", "The owl turns its head far around, it is a night bird."),
    ("how does the owl behave", "The owl turns its head far around, it is a night bird."),
    ("owl", "The lynx."),
]
LONG = [(query, " ".join([passage] * times)) for query, passage in TEXTS for times in (1, 2, 3)]


@pytest.fixture(scope="module")
def t5(family_folder, tmp_path_factory):
    """A folder with a tiny T5 of random weights and a tokenizer of T5's kind."""
    import transformers

    source, folder = family_folder("t5"), tmp_path_factory.mktemp("t5-writing")
    config = transformers.AutoConfig.from_pretrained(source)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.T5ForConditionalGeneration(config)
        for parameter in model.parameters():  # T5's own are so small that all scores are near 0
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    load_tokenizer(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(t5):
    return load_tokenizer(t5)


@pytest.fixture
def ids(tokenizer):
    """Token ids of pairs of texts, without special tokens."""

    def make(pairs):
        rows, _ = PlainTextTokenizer(tokenizer).tokenise([text for pair in pairs for text in pair])
        return [np.array(row) for row in rows[::2]], [np.array(row) for row in rows[1::2]]

    return make


def words_of(tokenizer, count):
    """So many words that are a token of the tiny vocabulary."""
    names = [token.removeprefix("▁") for token in tokenizer.get_vocab() if token.startswith("▁")]
    single = [
        name for name in sorted(names) if name.isalpha() and len(tokenizer.tokenize(name)) == 1
    ]
    return tuple(single[:count])


def test_scores_are_those_of_transformers_that_reads_the_whole_prompt(t5, tokenizer, ids):
    from transformers import AutoModelForSeq2SeqLM

    first, second = words_of(tokenizer, 2)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(t5).eval()
    inputs = tokenizer(
        [MONO_T5.format(query=q, passage=p) for q, p in LONG], padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        logits = theirs(
            **inputs, decoder_input_ids=torch.zeros(len(LONG), 1, dtype=torch.long)
        ).logits[:, 0]
    z = [logits[:, tokenizer.convert_tokens_to_ids(f"▁{word}")] for word in (first, second)]
    log_odds = torch.stack(z, 1).log_softmax(1)
    template = Template.of(tokenizer)
    for words, expected in (((first, second), log_odds[:, 0] - log_odds[:, 1]), ((first,), z[0])):
        model = CrossEncoder.start(t5, "decoder", PairOptions(MONO_T5, words)).eval()
        with torch.inference_mode():
            assert torch.allclose(model(*ids(LONG), template, "fp32"), expected, atol=1e-4)
        assert np.allclose(model.score(*ids(LONG), template, "fp32", 512), expected, atol=1e-4)
        assert expected.std() > 0.005


@pytest.mark.parametrize("mode", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["decoder", "mean"])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_score_is_the_same_to_the_bit_in_any_company(t5, tokenizer, ids, mode, pooling, frozen):
    torch.manual_seed(4)
    words = words_of(tokenizer, 2) if pooling == "decoder" else ()
    model = CrossEncoder.start(t5, pooling, PairOptions(MONO_T5, words)).eval()
    template = Template.of(tokenizer)
    plain = model.score(*ids(LONG), template, "fp32", 512)
    if frozen:
        accelerate(model, Execution(), 512, mode, training=False)
    scores = model.score(*ids(LONG), template, mode, 512)
    assert np.allclose(scores, plain, atol=1e-4 if mode == "fp32" else 0.5 * plain.std() + 0.02)
    alone = [model.score(*ids([pair]), template, mode, 512)[0] for pair in LONG]
    assert scores.tobytes() == np.array(alone).tobytes()


@pytest.mark.parametrize("pooling", ["decoder", "cls"])
def test_a_saved_folder_gives_the_same_scores(t5, tokenizer, ids, tmp_path, pooling):
    torch.manual_seed(4)
    words = words_of(tokenizer, 2) if pooling == "decoder" else ()
    model = CrossEncoder.start(t5, pooling, PairOptions(MONO_T5, words)).eval()
    model.save(tmp_path / "cross", tokenizer)
    again = CrossEncoder.load(tmp_path / "cross").eval()
    assert again.options == PairOptions(MONO_T5, words)
    template = Template.of(tokenizer)
    assert np.array_equal(
        model.score(*ids(LONG), template, "fp32", 512),
        again.score(*ids(LONG), template, "fp32", 512),
    )


def test_a_saved_monot5_is_a_language_model_that_reranks_with_the_same_scores(
    t5, tokenizer, ids, tmp_path
):
    from tandem.extras.language_models.local import LocalModel
    from tandem.extras.language_models.prompts import write_yes_no_prompt

    options = pytest.importorskip("tandem.contrib.llm_reranking.options")
    words = words_of(tokenizer, 2)
    CrossEncoder.start(t5, "decoder", PairOptions(MONO_T5, words)).save(
        tmp_path / "cross", tokenizer
    )
    params = {
        "model": str(tmp_path / "cross"),
        "method": "yes_no",
        "form": "monot5",
        "precision": "fp32",
    }
    asked = LocalModel(options.RerankLlmParams.model_validate(params), None)
    answers = [
        asked.compare(write_yes_no_prompt("monot5", "", q, p), words).score for q, p in TEXTS
    ]
    scores = CrossEncoder.load(tmp_path / "cross").score(
        *ids(TEXTS), Template.of(tokenizer), "fp32", 512
    )
    assert np.allclose(answers, scores, atol=1e-4)


def test_transformers_draws_no_head_for_an_encoder_that_reads_a_prompt(t5, tokenizer, tmp_path):
    from transformers import AutoModelForSequenceClassification

    CrossEncoder.start(t5, "cls", PairOptions(MONO_T5)).save(tmp_path / "cross", tokenizer)
    assert not (tmp_path / "cross/modules.json").exists()
    with pytest.raises(RuntimeError):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "cross")


def test_two_passages_are_read_as_one_text_with_words_between(t5, tokenizer, ids):
    from transformers import AutoModelForSeq2SeqLM

    prompt, words = (
        "Query: {query} Document0: {first} Document1: {second} Relevant:",
        words_of(tokenizer, 2),
    )
    model = CrossEncoder.start(t5, "decoder", PairOptions(prompt, words, passages=2)).eval()
    template = Template.of(tokenizer)
    queries, passages = ids(TEXTS)
    between = model.separator(template)
    joined = [np.array([*p, *between, *q]) for p, q in zip(passages, passages[::-1], strict=True)]
    scores = model.score(queries, Ragged.of(joined), template, "fp32", 512)
    whole = [
        prompt.format(query=q, first=p, second=other)
        for (q, p), (_, other) in zip(TEXTS, TEXTS[::-1], strict=True)
    ]
    inputs = tokenizer(whole, padding=True, return_tensors="pt")
    start = torch.zeros(len(whole), 1, dtype=torch.long)
    with torch.inference_mode():
        logits = (
            AutoModelForSeq2SeqLM.from_pretrained(t5)
            .eval()(**inputs, decoder_input_ids=start)
            .logits[:, 0]
        )
    z = [logits[:, tokenizer.convert_tokens_to_ids(f"▁{word}")] for word in words]
    assert np.allclose(scores, z[0] - z[1], atol=1e-4)


def test_what_has_no_decoder_and_what_is_no_word_is_refused(t5, family_folder):
    for folder, options, named in (
        (family_folder("bert"), PairOptions(MONO_T5, ("owl",)), "no decoder"),
        (t5, PairOptions(MONO_T5, ("unfathomable",)), "unfathomable"),
    ):
        with pytest.raises(UserError) as error:
            CrossEncoder.start(folder, "decoder", options)
        assert str(folder) in str(error.value)
        assert named in str(error.value)
        assert "\n" not in str(error.value)


def test_a_plain_pair_says_nothing_new_in_its_file(cross_model):
    assert json.loads((cross_model.folder / "cross/cross.json").read_text()) == {"pooling": "cls"}


@pytest.mark.parametrize("words", [("you",), ("Ġyou", "Ġthat")], ids=["a word", "entries"])
def test_the_cards_code_reads_a_bart_as_it_has_learned(tmp_path, documents, words, monkeypatch):
    """Its tokens do not begin with their blank: read as a whole the prompt would have other ones."""
    import transformers

    texts = [text for _, _, text in documents]
    texts += ["a query, a passage you that Query: Document: Relevant:"] * 50
    tokenizer = transformers.BartTokenizerFast().train_new_from_iterator(texts, 700)
    size = {"d_model": 32, "max_position_embeddings": 128}
    for side in ("encoder", "decoder"):
        size |= {f"{side}_layers": 1, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    marks = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
    config = transformers.BartConfig(vocab_size=len(tokenizer), **size, **marks)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.BartForConditionalGeneration(config)
        for parameter in model.parameters():  # scores that differ visibly
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")

    options = PairOptions(MONO_T5, words)
    cross = CrossEncoder.start(tmp_path / "bart", "decoder", options).eval()
    cross.save(tmp_path / "cross", load_tokenizer(tmp_path / "bart"))
    usage = describe_cross_usage(read_cross(tmp_path / "cross"), InputLengths(20, 50, 2, 4), None)
    monkeypatch.chdir(tmp_path)
    scores = []
    for block in re.findall(r"```python\n(.*?)```", usage, re.DOTALL):
        names = {}
        exec(block, names)
        scores.append(float(torch.as_tensor(names["scores"]).detach().reshape(())))
    assert len(scores) == 2
    assert scores[1] == pytest.approx(scores[0], abs=1e-4)
    assert abs(scores[0]) > 0.01
