"""Comparisons of two passages: preferences and orders by hand, against transformers, and through a server."""

import math
from itertools import permutations

import numpy as np
import pytest
from llm_server import completion
from pytest import approx

from tandem.contrib.llm_reranking.llm_rerank import (
    average_orders,
    compare_orders,
    order_by_bubbles,
    sum_all_pairs,
)
from tandem.data.collection import Collection, join_contents
from tandem.extras.language_models.prompts import write_pair_prompt

WORTH = [3, 1, 4, 1, 5, 9, 2, 6]
CHAT = {"method": "pairwise", "form": "chat", "model": "tiny-gpt"}


def by_worth(i, j):
    """The passage that is worth more is preferred."""
    return 0.5 + np.sign(WORTH[i] - WORTH[j]) / 2


def test_a_passage_wins_if_it_is_named_in_both_orders():
    assert compare_orders(2.0, -1.0) == 1  # named when it stands first, and when it stands second
    assert compare_orders(-2.0, 1.0) == 0
    # whatever stands first, or second, is named
    assert compare_orders(2.0, 1.0) == compare_orders(-2.0, -1.0) == 0.5
    assert (
        compare_orders(None, -1.0) == compare_orders(2.0, None) == compare_orders(0.0, -1.0) == 0.5
    )


def test_their_sum_is_half_of_what_a_trained_model_of_duot5s_prompt_sums():
    # p_ij of three passages, as log-odds
    logits = {(0, 1): 2.0, (0, 2): -0.5, (1, 0): -1.5, (1, 2): 1.0, (2, 0): 0.5, (2, 1): -1.0}
    preferred = {pair: 1 / (1 + math.exp(-value)) for pair, value in logits.items()}
    sums, summed = np.zeros(3), np.zeros(3)
    for i, j in logits:
        sums[i] += average_orders(logits[i, j], logits[j, i])
        summed[i] += preferred[i, j] + 1 - preferred[j, i]
    assert summed.tolist() == approx((2 * sums).tolist())


def test_probabilities_of_both_orders_by_hand():
    # p_ij = 3/4 and p_ji = 1/2: (3/4 + 1 - 1/2) / 2
    assert average_orders(math.log(3), 0.0) == approx(0.625)
    assert average_orders(0.0, math.log(3)) == approx(1 - 0.625)
    assert average_orders(None, 1.0) == 0.5


def test_all_pairs_count_wins_and_ties_keep_the_order():
    # worth 3, 1, 4, 1: over three others 2, 1/2, 3 and 1/2 wins; of the equal ones the earlier is higher by a bit
    scores = sum_all_pairs(4, by_worth)
    assert scores == approx([2, 0.5, 3, 0.5])
    assert scores[3] == np.nextafter(np.float32(0.5), np.float32(0))
    circle = sum_all_pairs(3, lambda i, j: float((i, j) != (0, 2)))  # 0 > 1 > 2 > 0
    assert np.argsort(-circle).tolist() == [0, 1, 2]
    assert (len(sum_all_pairs(0, by_worth)), sum_all_pairs(1, by_worth).tolist()) == (0, [0])


def test_passes_find_the_best_with_a_known_number_of_comparisons():
    for passes in (1, 3, 7):
        pairs = []
        ranked = order_by_bubbles(
            8, passes, lambda i, j, pairs=pairs: pairs.append((i, j)) or by_worth(i, j)
        )
        assert [WORTH[at] for at in ranked[:passes]] == sorted(WORTH, reverse=True)[:passes]
        assert len(pairs) == passes * (2 * 8 - passes - 1) / 2
        assert sorted(ranked) == list(range(8))
    assert order_by_bubbles(8, 3, lambda i, j: 0.5) == list(range(8))


def test_a_model_in_this_process_compares_as_transformers_does(
    language_model, rerank, questions, dataset
):
    import torch
    import transformers

    folder, (queries, docs) = language_model("t5"), questions
    artifact, runs = rerank(
        {"method": "pairwise", "form": "duot5", "model": str(folder), "depth": 4}
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    true, false = tokenizer.convert_tokens_to_ids(["true", "false"])
    texts = Collection(dataset).texts(docs)
    for query, text in queries:
        sums = dict.fromkeys(docs[:4], 0.0)
        for first, second in permutations(docs[:4], 2):
            prompt = write_pair_prompt(
                "duot5", text, join_contents(*texts[first]), join_contents(*texts[second])
            )
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            with torch.inference_mode():
                logits = model(ids, decoder_input_ids=torch.tensor([[1]])).logits[0, -1]
            p = float(logits[[true, false]].softmax(0)[0])
            sums[first] += p / 2
            sums[second] += (1 - p) / 2
        ranking, scores = runs[query]
        assert ranking[:4] == sorted(sums, key=sums.get, reverse=True)
        assert scores[:4] == approx(sorted(sums.values(), reverse=True), abs=1e-4)
        assert ranking[4:] == docs[4:]
    assert artifact.manifest.facts["asked"] == 2 * 4 * 3


def naming(choose):
    """A server whose choice between the passages A and B is a function of both; its letters are in lower case."""

    def respond(body, number):
        first, second = (
            body["messages"][0]["content"].partition("Passage A:")[2].split("Passage B:")
        )
        letter = choose(first, second)
        return 200, completion(letter, {letter.lower(): -0.1, "x": -3.0})

    return respond


def test_a_server_prefers_passages(server, rerank, questions):
    server.respond = naming(
        lambda first, second: "A" if "heron" in first and "heron" not in second else "B"
    )
    artifact, runs = rerank({**CHAT, "url": server.url}, {"url": server.url})
    docs = questions[1]
    herons = [doc for doc in docs[:6] if doc.startswith("heron")]
    others = [doc for doc in docs[:6] if doc not in herons]
    for ranking, scores in runs.values():
        assert ranking == [*herons, *others, *docs[6:]]  # among equals the run's order
        assert scores[:6] == approx([4, 4, 4, 1, 1, 1], abs=1e-5)  # 3 wins and 2 ties, 2 ties
    facts = artifact.manifest.facts
    assert (facts["asked"], facts["ties"], facts["repaired"]) == (2 * 6 * 5, 2 * 6, 0)


@pytest.mark.parametrize(("letter", "repaired"), [("A", 0), ("x", 20)])
def test_who_always_names_one_place_or_none_changes_nothing(
    letter, repaired, server, rerank, questions
):
    server.respond = naming(lambda first, second: letter)
    artifact, runs = rerank(
        {**CHAT, "passes": 2, "unlikely_below": 0, "url": server.url}, {"url": server.url}
    )
    assert all(ranking == questions[1] for ranking, _ in runs.values())
    facts = artifact.manifest.facts
    # of each query 5 comparisons in the first pass; the second asks for 4 of them again
    assert (facts["asked"], facts["ties"], facts["repaired"]) == (20, 10, repaired)
