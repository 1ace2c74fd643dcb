"""Language models in this process against transformers itself."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.data.collection import Collection, contents
from tandem.errors import UserError
from tandem.retrieval.llm.local import LocalModel
from tandem.retrieval.llm.prompts import YES_NO, listwise_prompt, permutation, verdict_text, yes_no_prompt

ASK = "Given a web search query, retrieve relevant passages that answer the query"


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
            logits = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits[0, -1]
    return float(logits[first] - logits[second])


@pytest.mark.parametrize(
    ("family", "form", "words"),
    [("qwen3", "qwen3", ("yes", "no")), ("t5", "monot5", ("true", "false")), ("llama", "chat", ("yes", "no"))],
)
def test_a_passage_scores_by_the_logits_of_two_words(family, form, words, language_model, rerank, questions, dataset):
    folder, (queries, docs) = language_model(family), questions
    artifact, runs = rerank({"method": "yes_no", "form": form, "instruction": ASK, "model": str(folder)})
    passages = Collection(dataset).texts(docs)
    for query, text in queries:
        scores = {}
        for doc in docs[:6]:
            prompt = yes_no_prompt(form, ASK, text, contents(*passages[doc]))
            prompt = f"<|im_start|>{prompt}<|im_end|><|im_start|>" if form == "chat" else prompt
            scores[doc] = expected_odds(folder, prompt, words)
        ranking, values = runs[query]
        assert ranking[:6] == sorted(scores, key=scores.get, reverse=True)
        assert np.allclose(values[:6], sorted(scores.values(), reverse=True), atol=1e-4)
        assert ranking[6:] == docs[6:]
        assert np.ptp(values[:6]) > 0.01
    facts = artifact.manifest.facts
    assert (facts["asked"], facts["known"], facts["repaired"], facts["answer_tokens"]) == (12, 0, 0, 12)
    assert facts["prompt_tokens"] > 12 * 10


def test_a_model_orders_a_window_by_its_answer(language_model, rerank, questions, dataset):
    import transformers

    folder, (queries, docs) = language_model("qwen3"), questions
    artifact, runs = rerank({"method": "listwise", "window": 6, "step": 3, "model": str(folder)})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    passages, repaired = Collection(dataset).texts(docs), 0
    for query, text in queries:
        prompt = listwise_prompt(text, [contents(*passages[doc]) for doc in docs[:6]])
        ids = tokenizer(f"<|im_start|>{prompt}<|im_end|><|im_start|>", return_tensors="pt")
        answer = model.generate(**ids, max_new_tokens=36, do_sample=False)[0, ids["input_ids"].shape[1] :]
        order, mended = permutation(tokenizer.decode(answer, skip_special_tokens=True), 6)
        repaired += mended
        assert runs[query][0] == [*(docs[at] for at in order), *docs[6:]]
        assert list(runs[query][1][:6]) == [6, 5, 4, 3, 2, 1]
    assert artifact.manifest.facts["repaired"] == repaired == 2  # random weights name no order


def test_what_is_answered_is_not_asked_again(language_model, rerank):
    params = {"method": "yes_no", "form": "qwen3", "instruction": ASK, "model": str(language_model("qwen3"))}
    _, first = rerank(params)
    artifact, second = rerank(params, name="again")
    assert (artifact.manifest.facts["asked"], artifact.manifest.facts["known"]) == (0, 12)
    assert {query: list(scores) for query, (_, scores) in first.items()} == {
        query: list(scores) for query, (_, scores) in second.items()
    }


def test_an_answer_is_the_likeliest_whatever_a_folder_says_of_generation(language_model, tmp_path):
    folder = shutil.copytree(language_model("qwen3"), tmp_path / "qwen3")
    plain = LocalModel(str(folder), None, "fp32", chat=True).complete("a b", 12)
    path = folder / "generation_config.json"
    config = json.loads(path.read_text()) | {"do_sample": True, "temperature": 0.6, "top_k": 20, "num_beams": 2}
    path.write_text(json.dumps(config | {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1}))
    assert LocalModel(str(folder), None, "fp32", chat=True).complete("a b", 12) == plain


@pytest.mark.parametrize(("rows", "problem"), [(0, "lack lm_head"), (9, "another shape")])
def test_a_folder_whose_head_is_missing_or_does_not_fit_is_refused(rows, problem, language_model, tmp_path):
    folder = shutil.copytree(language_model("llama"), tmp_path / "llama")
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]  # without it transformers draws one at random
    own = {"lm_head.weight": torch.zeros(rows, 32)} if rows else {}
    save_file(tensors | own, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"its weights .*{problem}"):
        LocalModel(str(folder), None, "fp32", chat=False)


def test_thoughts_that_the_template_begins_say_nothing_when_they_are_cut_off(language_model):
    model = LocalModel(str(language_model("qwen3")), None, "fp32", chat=True)
    plain = model.complete("a b", 4).text
    model.tokenizer.chat_template += "<think>\n"
    assert plain
    assert verdict_text(model.complete("a b", 4).text) == ""


def test_a_prompt_longer_than_the_model_and_a_word_of_two_tokens_are_one_line(language_model, tmp_path):
    short = LocalModel(str(language_model("qwen3", max_position_embeddings=16)), None, "fp32", chat=False)
    with pytest.raises(
        UserError, match="a prompt has .* tokens and its answer 1, the model takes 16; lower characters"
    ):
        short.compare(YES_NO["qwen3"], ("yes", "no"))
    with pytest.raises(UserError, match="its tokenizer has no single token for 'relevant indeed'"):
        short.compare("a", ("relevant indeed", "no"))
    with pytest.raises(UserError, match="transformers cannot load it"):
        LocalModel(str(tmp_path), None, "fp32", chat=False)
