"""Language models in this process against transformers itself."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_language_models import make_language_model

from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.extras.language_models.local import LocalModel
from tandem.extras.language_models.options import LlmParams
from tandem.extras.language_models.prompts import (
    CHAT,
    TEMPLATES,
    read_permutation,
    strip_thoughts,
    write_listwise_prompt,
    write_yes_no_prompt,
)

ASK = "Given a web search query, retrieve relevant passages that answer the query"
# As the model's card has it: Qwen/Qwen3-Reranker-0.6B.
QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n'
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
WHOLE = {"chat": "<|im_start|>{}<|im_end|><|im_start|>", "qwen3": QWEN3, "monot5": "{}"}


def load(folder, template=CHAT, **params):
    """A model in this process."""
    return LocalModel(LlmParams(model=str(folder), **{"precision": "fp32", **params}), template)


def expected_odds(folder, prompt, words):
    """logit(first) − logit(second) behind a prompt, by transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    first, second = (tokenizer.convert_tokens_to_ids(word) for word in words)
    with torch.inference_mode():
        if "t5" in folder.name:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            logits = model(ids, decoder_input_ids=torch.tensor([[1]])).logits[0, -1]
        else:
            logits = (
                transformers.AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits[0, -1]
            )
    return float(logits[first] - logits[second])


@pytest.mark.parametrize(
    ("family", "form", "words"),
    [
        ("qwen3", "qwen3", ("yes", "no")),
        ("t5", "monot5", ("true", "false")),
        ("llama", "chat", ("yes", "no")),
    ],
)
def test_a_passage_scores_by_the_logits_of_two_words(
    family, form, words, language_model, rerank, questions, dataset
):
    folder, (queries, docs) = language_model(family), questions
    artifact, runs = rerank(
        {"method": "yes_no", "form": form, "instruction": ASK, "model": str(folder)}
    )
    passages = Collection(dataset).texts(docs)
    for query, text in queries:
        scores = {}
        for doc in docs[:6]:
            prompt = write_yes_no_prompt(form, ASK, text, join_contents(*passages[doc]))
            scores[doc] = expected_odds(folder, WHOLE[form].format(prompt), words)
        ranking, values = runs[query]
        assert ranking[:6] == sorted(scores, key=scores.get, reverse=True)
        assert np.allclose(values[:6], sorted(scores.values(), reverse=True), atol=1e-4)
        assert ranking[6:] == docs[6:]
        assert np.ptp(values[:6]) > 0.01
    facts = artifact.manifest.facts
    assert (facts["asked"], facts["known"], facts["repaired"], facts["answer_tokens"]) == (
        12,
        0,
        0,
        12,
    )
    assert facts["prompt_tokens"] > 12 * 10


def test_a_model_orders_a_window_by_its_answer(language_model, rerank, questions, dataset):
    import transformers

    folder, (queries, docs) = language_model("qwen3"), questions
    artifact, runs = rerank({"method": "listwise", "window": 6, "step": 3, "model": str(folder)})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    passages, repaired = Collection(dataset).texts(docs), 0
    for query, text in queries:
        prompt = write_listwise_prompt(text, [join_contents(*passages[doc]) for doc in docs[:6]])
        ids = tokenizer(f"<|im_start|>{prompt}<|im_end|><|im_start|>", return_tensors="pt")
        answer = model.generate(**ids, max_new_tokens=36, do_sample=False)[
            0, ids["input_ids"].shape[1] :
        ]
        order, mended = read_permutation(tokenizer.decode(answer, skip_special_tokens=True), 6)
        repaired += mended
        assert runs[query][0] == [*(docs[at] for at in order), *docs[6:]]
        assert list(runs[query][1][:6]) == [6, 5, 4, 3, 2, 1]
    assert artifact.manifest.facts["repaired"] == repaired == 2  # random weights name no order


def test_what_is_answered_is_not_asked_again(language_model, rerank):
    params = {
        "method": "yes_no",
        "form": "qwen3",
        "instruction": ASK,
        "model": str(language_model("qwen3")),
    }
    _, first = rerank(params)
    artifact, second = rerank(params, name="again")
    assert (artifact.manifest.facts["asked"], artifact.manifest.facts["known"]) == (0, 12)
    assert {query: list(scores) for query, (_, scores) in first.items()} == {
        query: list(scores) for query, (_, scores) in second.items()
    }


def test_an_answer_is_the_likeliest_whatever_a_folder_says_of_generation(language_model, tmp_path):
    folder = shutil.copytree(language_model("qwen3"), tmp_path / "qwen3")
    plain = load(folder).complete("a b", 12)
    path = folder / "generation_config.json"
    config = json.loads(path.read_text()) | {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "num_beams": 2,
    }
    path.write_text(json.dumps(config | {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1}))
    assert load(folder).complete("a b", 12) == plain


@pytest.mark.parametrize(("rows", "problem"), [(0, "lack lm_head"), (9, "another shape")])
def test_a_folder_whose_head_is_missing_or_does_not_fit_is_refused(
    rows, problem, language_model, tmp_path
):
    folder = shutil.copytree(language_model("llama"), tmp_path / "llama")
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]  # without it transformers draws one at random
    own = {"lm_head.weight": torch.zeros(rows, 32)} if rows else {}
    save_file(tensors | own, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"its weights .*{problem}"):
        load(folder, None)


def test_thoughts_that_the_template_begins_say_nothing_when_they_are_cut_off(language_model):
    model = load(language_model("qwen3"))
    plain = model.complete("a b", 4).text
    model.template += "<think>\n"
    assert plain
    assert strip_thoughts(model.complete("a b", 4).text) == ""


def test_a_prompt_longer_than_the_model_and_a_word_of_two_tokens_are_one_line(
    language_model, tmp_path
):
    short = load(language_model("qwen3", max_position_embeddings=16), TEMPLATES["qwen3"])
    with pytest.raises(
        UserError,
        match="a prompt has .* tokens and its answer 1, the model takes 16; lower characters",
    ):
        short.compare("a", ("yes", "no"))
    with pytest.raises(UserError, match="its tokenizer has no single token for 'relevant indeed'"):
        short.compare("a", ("relevant indeed", "no"))
    with pytest.raises(UserError, match="transformers cannot load it"):
        load(tmp_path)


def test_scores_of_bf16_are_computed_in_float32(language_model):
    """bf16 has 8 bits: two logits between 16 and 32 are an eighth apart, or equal."""
    import transformers

    folder = language_model("llama", initializer_range=1.0)
    model = load(folder, None, precision="bf16")
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    yes, no = model.tokenizer.convert_tokens_to_ids(["yes", "no"])
    scores, errors = set(), []
    for prompt in ("otter yes", "heron", "the bat eats", "a river mammal", "moths and midges"):
        with torch.inference_mode():
            output = plain(
                **model.tokenizer([prompt], return_tensors="pt"), output_hidden_states=True
            )
        vector = output.hidden_states[-1][0, -1].double()
        rows = plain.lm_head.weight.detach()[[yes, no]].double() @ vector
        score = model.compare(prompt, ("yes", "no")).score
        assert score == pytest.approx(float(rows[0] - rows[1]), abs=1e-4)
        scores.add(score)
        errors.append(abs(float(output.logits[0, -1, yes] - output.logits[0, -1, no]) - score))
    assert len(scores) == 5
    assert max(errors) > 0.005


@pytest.mark.parametrize(
    ("family", "form", "token"),
    [("qwen3", "chat", "<|im_end|>"), ("qwen3", "qwen3", "<|im_end|>"), ("t5", "monot5", "[EOS]")],
)
def test_special_tokens_in_a_text_are_read_as_text(family, form, token, language_model):
    """A passage that ends the turn, and goes on as the assistant, would give the answer itself."""
    model = load(language_model(family), TEMPLATES[form])
    known = model.tokenizer.convert_tokens_to_ids(token)

    def count(passage):
        ids = model._inputs(write_yes_no_prompt(form, ASK, "otter", passage), 1)["input_ids"][
            0
        ].tolist()
        return ids.count(known), len(ids)

    plain, length = count("the otter eats crabs")
    own = WHOLE[form].count(token)
    assert plain == own
    assert count(f"the otter {token} eats crabs") == (own, length + 3)  # <| im_end |>, or [ EOS ]


def test_t5s_own_tokenizer_reads_an_end_in_a_text_as_text(language_model, tmp_path):
    """Its pieces include "</s>", which transformers' split_special_tokens does not keep it from."""
    import transformers

    folder = shutil.copytree(language_model("t5"), tmp_path / "t5")
    words = ["otter", "yes", "no", "Query: Document: Relevant: </s> <pad> eats crabs"] * 20
    tokenizer = transformers.T5Tokenizer(extra_ids=0).train_new_from_iterator(words, 60)
    tokenizer.save_pretrained(folder)
    model, end = load(folder, None), tokenizer.eos_token_id
    plain, spelled = (
        model._inputs(write_yes_no_prompt("monot5", ASK, "otter", passage), 1)["input_ids"][
            0
        ].tolist()
        for passage in ("otter eats", "otter </s> eats")
    )
    prompt = write_yes_no_prompt("monot5", ASK, "otter", "otter eats")
    assert plain == tokenizer(prompt)["input_ids"]
    assert (spelled.count(end), spelled[-1]) == (1, end)
    assert len(spelled) > len(plain)


def test_texts_without_special_tokens_are_read_as_ever(language_model):
    import transformers

    folder = language_model("qwen3")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for form in ("chat", "qwen3", "monot5"):
        prompt = write_yes_no_prompt(form, ASK, "otter", "the otter  eats\ncrabs")
        expected = tokenizer(WHOLE[form].format(prompt), add_special_tokens=form == "monot5")[
            "input_ids"
        ]
        assert load(folder, TEMPLATES[form])._inputs(prompt, 1)["input_ids"][0].tolist() == expected


def test_the_form_of_qwen3_is_what_it_was_trained_with(language_model):
    assert load(language_model("qwen3"), TEMPLATES["qwen3"])._rendered(
        "text {{ x }}", {}
    ) == QWEN3.format("text {{ x }}")


def test_the_share_is_the_probability_of_both_words(language_model):
    folder = language_model("llama")
    model = load(folder, None)
    answer = model.compare("otter", ("yes", "no"))
    with torch.inference_mode():
        logits = model.model(**model.tokenizer(["otter"], return_tensors="pt")).logits[0, -1]
    yes, no = model.tokenizer.convert_tokens_to_ids(["yes", "no"])
    odds = logits.double().softmax(0)
    assert answer.share == pytest.approx(float(odds[yes] + odds[no]), rel=1e-4)
    assert answer.text == model.tokenizer.decode([int(odds.argmax())])


def test_a_chat_model_may_answer_with_a_capital(tmp_path):
    folder = make_language_model(tmp_path, "llama", ["otter yes Yes YES no No"])
    model = load(folder, "{{ messages[0].content }}")
    chat = load(folder)
    chat.template = model.template
    tokens = model.tokenizer.convert_tokens_to_ids(["yes", "Yes", "YES", "no", "No"])
    with torch.inference_mode():
        logits = model.model(**model.tokenizer(["otter"], return_tensors="pt")).logits[0, -1]
    first, second = logits[tokens[:3]], logits[tokens[3:]]
    assert chat.compare("otter", ("yes", "no")).score == pytest.approx(
        float(first.max() - second.max()), abs=1e-4
    )
    assert model.compare("otter", ("yes", "no")).score == pytest.approx(
        float(first[0] - second[0]), abs=1e-4
    )


def test_a_model_that_hardly_ever_says_either_word_is_refused(language_model, rerank):
    params = {
        "method": "yes_no",
        "form": "chat",
        "instruction": ASK,
        "model": str(language_model("llama")),
    }
    with pytest.raises(
        UserError, match=r"12 of the first 12 answers give 'yes' and 'no' together .* below 0\.05"
    ):
        rerank({**params, "unlikely_below": 0.05})
    assert rerank(params)[0].manifest.facts["asked"] == 0  # what is answered is kept


def test_variables_reach_the_chat_template(language_model, tmp_path, capsys):
    folder = shutil.copytree(language_model("llama"), tmp_path / "llama")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if not enable_thinking | default(true) %} no{% endif %}"
    )
    plain, quiet = load(folder), load(folder, chat_template_kwargs={"enable_thinking": False})
    shown = (
        plain._inputs("otter", 1)["input_ids"][0].tolist(),
        quiet._inputs("otter", 1)["input_ids"][0].tolist(),
    )
    assert shown[1] == [*shown[0], plain.tokenizer.convert_tokens_to_ids("no")]
    assert "warning" not in capsys.readouterr().err
    load(folder, chat_template_kwargs={"enable_thinkin": False})
    assert "chat_template_kwargs.enable_thinkin changes nothing" in capsys.readouterr().err


def test_an_answer_may_be_longer_than_its_words_need(language_model):
    folder = language_model("qwen3")
    assert (
        load(folder).complete("a b", 3).written
        <= 3
        < load(folder, max_completion_tokens=9).complete("a b", 3).written
    )
