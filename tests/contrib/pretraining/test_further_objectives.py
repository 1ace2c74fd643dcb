"""Condenser, TSDAE, the inverse cloze task, CoT-MAE, DupMAE and LexMAE: by hand, and written out passage by passage."""

import math

import numpy as np
import pytest
import torch
from pretrain_cases import BIG, CASES, ROWS, VOCABULARY, objective
from pytest import approx
from test_pretrain_losses import STEP, masked_lm, padded
from tiny_training import texts
from transformers import DistilBertConfig, DistilBertModel

from tandem.contrib.pretraining.dup_mae import bag_of_words_loss
from tandem.contrib.pretraining.ict import Ict
from tandem.contrib.pretraining.lex_mae import lexicon_bottleneck
from tandem.contrib.pretraining.masking import IGNORED, delete_tokens, make_generator
from tandem.contrib.pretraining.options import PRETRAININGS
from tandem.contrib.pretraining.pretrain import OBJECTIVES, passages_alone
from tandem.contrib.pretraining.tsdae import make_decoder
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.training.distributed import SINGLE_PROCESS
from tandem.training.forward import Seeds
from tandem.training.lists import Batch


def evaluated(name, rows=ROWS, **train):
    """An objective without dropout, and the values that a step over some passages reports."""
    pretraining = objective(name, **train)
    pretraining.models.eval()
    return pretraining, pretraining.backward(Batch(rows, rows[:, None]), STEP)


def one(ragged, row):
    """A row alone."""
    return ragged.take(np.array([row]))


def cross_entropy(logits, targets):
    """The mean over what is labelled, of one passage."""
    at = targets[0] != IGNORED
    return float(torch.nn.functional.cross_entropy(logits[0][at], targets[0][at]).detach())


def through(blocks, hidden, visible):
    """What some layers make of states."""
    for block in blocks:
        hidden = block(hidden, hidden, visible)
    return hidden


def test_condenser_is_the_sum_of_its_parts():
    pretraining, values = evaluated("condenser")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    seen, labels = VOCABULARY.hide(passages, 0.15, make_generator(STEP))
    mlm, head = [], []
    for row in range(len(ROWS)):
        inputs, targets = padded(pretraining, one(seen, row), one(labels, row))
        mlm.append(float(whole(**inputs, labels=targets).loss.detach()))
        # embeddings, layer 1, layer 2
        states = pretraining.encoder(**inputs, output_hidden_states=True).hidden_states
        hidden = torch.cat([states[2][:, :1], states[1][:, 1:]], 1)
        everything = torch.ones(1, 1, hidden.shape[1], dtype=torch.bool)
        head.append(
            cross_entropy(whole.cls(through(pretraining.condenser, hidden, everything)), targets)
        )
    assert values["mlm"] == approx(np.mean(mlm), rel=1e-9)
    assert values["head"] == approx(np.mean(head), rel=1e-9)
    assert values["loss"] == approx(np.mean(mlm) + np.mean(head), rel=1e-9)


def decode(encoder, decoder, ids, vector):
    """The states of TSDAE's decoder, written out with the encoder's own layers."""
    length = ids.shape[1]
    later = torch.full((length, length), -math.inf, dtype=torch.float64).triu(1)[None, None]
    states = encoder.embeddings(ids)
    for layer, decoding in zip(encoder.encoder.layer, decoder.encoder.layer, strict=True):
        attended = layer.attention(states, later)[0]
        # attention to one key is its value
        cross = decoding.crossattention
        given = cross.output.LayerNorm(cross.output.dense(cross.self.value(vector)) + attended)
        states = layer.output(layer.intermediate(given), given)
    return states


def test_tsdae_restores_each_token_from_the_vector_and_the_earlier_ones():
    pretraining, values = evaluated("tsdae", pooling="mean")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    damaged = delete_tokens(passages, 0.6, make_generator(STEP))
    losses = []
    for row in range(len(ROWS)):
        inputs, _ = padded(pretraining, one(damaged, row), one(damaged, row))
        vector = pretraining.encoder(**inputs).last_hidden_state[0].mean(0)
        complete, _ = padded(pretraining, one(passages, row), one(passages, row))
        ids = passages[row].tolist()
        states = decode(pretraining.encoder, pretraining.decoder, complete["input_ids"], vector)
        # [CLS] predicts the first token, the last one [SEP], which is not restored
        logits = whole.cls(states)[0, : len(ids)]
        chances = logits.log_softmax(1)[torch.arange(len(ids)), torch.tensor(ids)]
        losses.append(float(-chances.mean().detach()))
    assert values["loss"] == approx(np.mean(losses), rel=1e-9)


def test_tsdaes_decoder_learns_with_the_encoder():
    pretraining, _ = evaluated("tsdae", pooling="mean")
    own = {name for name, _ in pretraining.models.named_parameters() if "decoder." in name}
    assert own
    assert all("crossattention" in name for name in own)
    layer = pretraining.decoder.encoder.layer[0].attention.self.query
    assert layer.weight is pretraining.encoder.encoder.layer[0].attention.self.query.weight


def test_tsdae_refuses_an_encoder_that_is_no_decoder():
    encoder = DistilBertModel(
        DistilBertConfig(vocab_size=30, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    )
    with pytest.raises(UserError, match="distilbert is none"):
        make_decoder(encoder)


def test_deletion_by_hand_and_in_its_proportion():
    rows = Ragged(np.arange(10, 16), np.array([0, 4, 4, 6]))
    draws = np.random.default_rng(3).random(6)
    # those with the largest draws stay
    kept = delete_tokens(rows, float(np.sort(draws)[3]), np.random.default_rng(3))
    expected = [10 + at for at in range(6) if draws[at] >= np.sort(draws)[3]]
    assert set(expected) <= set(kept.ids.tolist())
    assert len(kept[1]) == 0
    assert all(len(kept[row]) >= 1 for row in (0, 2))
    alone = delete_tokens(rows, 1 - 1e-12, np.random.default_rng(3))  # all would go
    assert [len(alone[row]) for row in range(3)] == [1, 0, 1]
    assert alone[0][0] == 10 + int(draws[:4].argmax())
    many = Ragged(np.arange(40_000), np.array([0, 40_000]))
    assert len(delete_tokens(many, 0.6, np.random.default_rng(1)).ids) / 40_000 == approx(
        0.4, abs=0.01
    )


def test_a_query_is_cut_out_of_its_passage():
    pretraining = objective("ict", keep_probability=0.0)
    passages = texts().passages.take(ROWS)
    queries, contexts = Ict.pair(pretraining, passages, STEP)
    for row in range(len(ROWS)):
        passage, query, context = (part[row].tolist() for part in (passages, queries, contexts))
        places = [at for at in range(len(passage)) if passage[at : at + len(query)] == query]
        assert any(passage[:at] + passage[at + len(query) :] == context for at in places)
    kept = Ict.pair(objective("ict", keep_probability=1.0), passages, STEP)
    assert kept[0].ids.tolist() == queries.ids.tolist()
    assert kept[1].ids.tolist() == passages.ids.tolist()
    single = Ragged(np.array([7, 8]), np.array([0, 1, 2]))
    assert Ict.pair(pretraining, single, STEP)[1].ids.tolist() == [7, 8]  # all span: it stays whole


def test_spans_stay_in_their_passages_as_often_as_said():
    many = Ragged(np.tile(np.arange(4, 24), 3000), np.arange(3001) * 20)
    _, contexts = Ict.pair(objective("ict", keep_probability=0.1), many, STEP)
    whole = (np.diff(contexts.offsets) == 20).mean()
    assert whole == approx(0.1, abs=0.02)


def test_ict_is_a_softmax_over_the_other_passages():
    pretraining, values = evaluated("ict")
    queries, contexts = Ict.pair(pretraining, texts().passages.take(ROWS), STEP)
    first, second = (
        pretraining.model.encode("query", part, texts().template, "fp32")
        for part in (queries, contexts)
    )
    scores = first @ second.T / 2.0
    losses = []
    for i, row in enumerate(ROWS):
        others = [j for j in range(len(ROWS)) if j == i or ROWS[j] != row]  # passage 3 stands twice
        losses.append(float((scores[i, others].logsumexp(0) - scores[i, i]).detach()))
    assert values["loss"] == approx(np.mean(losses), rel=1e-10)


def test_cot_mae_restores_each_span_from_the_other_ones_vector():
    pretraining, values = evaluated("cot_mae")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    drawn = pretraining.draw(passages, STEP)
    mlm, decoder = [], []
    for row in range(len(ROWS)):
        for this, other in ((0, 4), (4, 0)):
            inputs, targets = padded(pretraining, one(drawn[this], row), one(drawn[this + 1], row))
            mlm.append(float(whole(**inputs, labels=targets).loss.detach()))
            vector = pretraining.encoder(**inputs).last_hidden_state[:, :1]
            context, targets = padded(
                pretraining, one(drawn[other + 2], row), one(drawn[other + 3], row)
            )
            hidden = torch.cat(
                [vector, pretraining.encoder.embeddings(context["input_ids"])[:, 1:]], 1
            )
            everything = torch.ones(1, 1, hidden.shape[1], dtype=torch.bool)
            decoder.append(
                cross_entropy(whole.cls(through(pretraining.decoder, hidden, everything)), targets)
            )
    assert values["mlm"] == approx(np.mean(mlm), rel=1e-9)
    assert values["decoder"] == approx(np.mean(decoder), rel=1e-9)


def test_cot_maes_spans_are_of_one_passage_and_hidden_as_said():
    pretraining, passages = objective("cot_mae"), texts().passages.take(ROWS)
    drawn = pretraining.draw(passages, STEP)
    for row in range(len(ROWS)):
        for seen, labels, share in ((0, 1, 0.3), (2, 3, 0.45), (4, 5, 0.3), (6, 7, 0.45)):
            hidden = drawn[labels][row] != IGNORED
            assert hidden.sum() == max(1, round(share * len(hidden)))
            assert set(drawn[labels][row][hidden]) <= set(passages[row])
            assert len(drawn[seen][row]) == len(hidden)


def test_highest_logits_are_those_of_a_passages_own_tokens():
    head = objective("dup_mae").head
    words, dim = len(head.bias), head.dense.in_features
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 5, dim, generator=draw, dtype=head.bias.dtype, requires_grad=True)
    embeddings = torch.randn(words, dim, generator=draw, dtype=head.bias.dtype, requires_grad=True)
    present = torch.tensor([[0, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()
    weights = torch.randn(3, words, generator=draw, dtype=head.bias.dtype)

    def gradients(highest):
        return torch.autograd.grad((weights * highest).sum(), [hidden, embeddings])

    found = head.find_highest(hidden, present, embeddings)
    logits = head.compute_logits(hidden, embeddings)
    expected = torch.stack([logits[0, 1:3].amax(0), logits[1, 1:4].amax(0), torch.zeros(words)])
    assert torch.allclose(found, expected)
    for ours, theirs in zip(gradients(found), gradients(expected), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_bag_of_words_by_hand():
    # v = (ln 4, ln 2, 0), so softmax(v) = (4, 2, 1) / 7; the third position is padding.
    highest = torch.tensor([[math.log(4), math.log(2), 0.0]])
    assert bag_of_words_loss(highest, torch.tensor([[0, 1, IGNORED]])).item() == approx(
        (math.log(7 / 4) + math.log(7 / 2)) / 2
    )
    # a set
    assert bag_of_words_loss(highest, torch.tensor([[1, 1, IGNORED]])).item() == approx(
        math.log(7 / 2)
    )
    assert bag_of_words_loss(highest, torch.tensor([[IGNORED] * 3])).item() == 0


def test_dup_mae_is_retromae_and_the_bag_of_words():
    pretraining, values = evaluated("dup_mae")
    _, retromae = evaluated("retromae")
    assert (values["mlm"], values["decoder"]) == (
        approx(retromae["mlm"]),
        approx(retromae["decoder"]),
    )
    assert values["loss"] == approx(values["mlm"] + values["decoder"] + values["bag"])
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    seen, _ = VOCABULARY.hide(passages, 0.3, make_generator(STEP))
    losses = []
    for row in range(len(ROWS)):
        inputs, _ = padded(pretraining, one(seen, row), one(passages, row))
        logits = whole(**inputs).logits[0, 1:-1].max(0).values  # without [CLS] and [SEP]
        words = sorted(set(passages[row].tolist()))
        losses.append(float(-logits.log_softmax(0)[words].mean().detach()))
    assert values["bag"] == approx(0.5 * np.mean(losses), rel=1e-9)


def test_lexicon_bottleneck_by_hand():
    # a = softmax((ln 3, 0)) = (3/4, 1/4)
    highest = torch.tensor([[math.log(3), 0.0]])
    words = torch.tensor([[4.0, 0.0], [0.0, 8.0]], requires_grad=True)
    result = lexicon_bottleneck(highest, words)
    assert result.tolist() == [approx([3.0, 2.0])]
    assert not result.requires_grad  # the embeddings get no gradient through it


def test_lex_mae_restores_from_weights_of_words():
    pretraining, values = evaluated("lex_mae")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    seen, labels, context, context_labels = pretraining.draw(passages, STEP)
    table = pretraining.encoder.get_input_embeddings().weight
    mlm, decoder = [], []
    for row in range(len(ROWS)):
        inputs, targets = padded(pretraining, one(seen, row), one(labels, row))
        output = whole(**inputs, labels=targets)
        mlm.append(float(output.loss.detach()))
        importance = output.logits[0, 1:-1].max(0).values.softmax(0)
        inputs, targets = padded(pretraining, one(context, row), one(context_labels, row))
        embedded = pretraining.encoder.embeddings(inputs["input_ids"])
        hidden = torch.cat([(importance @ table)[None, None], embedded[:, 1:]], 1)
        everything = torch.ones(1, 1, hidden.shape[1], dtype=torch.bool)
        states = through(pretraining.decoder, hidden, everything)
        decoder.append(
            cross_entropy(pretraining.decoder_head.compute_logits(states, table), targets)
        )
    assert values["mlm"] == approx(np.mean(mlm), rel=1e-9)
    assert values["decoder"] == approx(np.mean(decoder), rel=1e-9)


def test_what_lex_mae_hides_from_the_encoder_it_hides_from_the_decoder():
    passages = texts().passages.take(ROWS)
    _, of_encoder, _, of_decoder = objective("lex_mae").draw(passages, STEP)
    hidden = of_encoder.ids != IGNORED
    assert (of_decoder.ids[hidden] == of_encoder.ids[hidden]).all()
    assert (of_decoder.ids != IGNORED).sum() > hidden.sum()


@pytest.mark.parametrize("name", ["condenser", "tsdae", "ict", "cot_mae", "dup_mae", "lex_mae"])
def test_every_weight_learns_and_a_step_lowers_the_loss(name):
    pretraining, before = evaluated(name)
    gradients = {path: parameter.grad for path, parameter in pretraining.models.named_parameters()}
    assert all(
        gradient is not None and gradient.isfinite().all() for gradient in gradients.values()
    )
    with torch.no_grad():
        for parameter in pretraining.models.parameters():
            parameter -= 1e-4 * parameter.grad
    after = pretraining.backward(Batch(ROWS, ROWS[:, None]), STEP)
    assert after["loss"] < before["loss"]


def test_the_same_step_draws_the_same_and_another_one_does_not():
    first, again = (evaluated("lex_mae")[1]["loss"] for _ in range(2))
    pretraining = objective("lex_mae")
    pretraining.models.eval()
    other = pretraining.backward(Batch(ROWS, ROWS[:, None]), Seeds((1, 3)))["loss"]
    assert first == again != other


def test_condenser_needs_a_layer_below_the_last():
    with pytest.raises(
        UserError, match=r"train.skip_from is 2, but the encoder has 2 layers; name an earlier one"
    ):
        objective("condenser", skip_from=2)


@pytest.mark.parametrize("name", ["retromae", "dup_mae", "cot_mae", "lex_mae"])
@pytest.mark.parametrize(
    ("family", "problem"),
    [
        ("electra", "states have 32 dimensions and embeddings 16"),
        ("modernbert", "needs an encoder with position embeddings"),
        ("deberta-v2", "needs an encoder with position embeddings"),
    ],
)
def test_a_decoder_needs_embeddings_like_the_states_and_positions(
    name, family, problem, family_folder
):
    encoder = load_encoder(family_folder(family))
    if family == "deberta-v2":  # as its third version is published
        encoder.embeddings.position_embeddings = None
    model = DualEncoder(encoder, encoder, DualShape(True, "cls", False, 1.0))
    params = PRETRAININGS[name].model_validate({"precision": "fp32", **CASES[name]})
    tokens = passages_alone(texts())[0]
    with pytest.raises(UserError, match=problem):
        OBJECTIVES[name](model, tokens, params, VOCABULARY, BIG, SINGLE_PROCESS)
