"""Pre-training losses: against transformers' own models, against the paper's formula, and by hand."""

import math

import numpy as np
import pytest
import torch
from pretrain_cases import ROWS, VOCABULARY, objective, results
from pytest import approx
from tiny_training import texts

from tandem.contrib.pretraining.layers import Block, LanguageHead, join_head
from tandem.contrib.pretraining.masking import align_labels, crop, delete_tokens, make_generator
from tandem.contrib.pretraining.objectives import span_contrast
from tandem.contrib.pretraining.options import Spans
from tandem.errors import UserError
from tandem.models.ragged import Ragged
from tandem.training.forward import Seeds
from tandem.training.lists import Batch

STEP, SHARES = Seeds((1, 2)), Spans(crop_shortest=0.3, crop_longest=0.7)


def padded(pretraining, seen, labels):
    """Model inputs and aligned labels of some texts, without rounding the length up."""
    inputs = texts().template.single_inputs(seen).to_tensors()
    return inputs, torch.from_numpy(align_labels(labels, 1, inputs["input_ids"].shape[1]))


def masked_lm(pretraining):
    """transformers' BertForMaskedLM with the weights of an objective's encoder and head."""
    from transformers import BertForMaskedLM

    whole = BertForMaskedLM(pretraining.encoder.config).double().eval()
    whole.bert.load_state_dict(pretraining.encoder.state_dict())
    head = whole.cls.predictions
    head.transform.dense.load_state_dict(pretraining.head.dense.state_dict())
    head.transform.LayerNorm.load_state_dict(pretraining.head.norm.state_dict())
    head.decoder.weight, head.decoder.bias = (
        whole.bert.embeddings.word_embeddings.weight,
        pretraining.head.bias,
    )
    return whole


def test_mlm_equals_transformers():
    pretraining = objective("mlm")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    seen, labels = VOCABULARY.hide(passages, 0.15, make_generator(STEP))
    losses = []
    for row in range(len(ROWS)):
        inputs, targets = padded(
            pretraining, seen.take(np.array([row])), labels.take(np.array([row]))
        )
        losses.append(float(whole(**inputs, labels=targets).loss.detach()))
    assert results("mlm")[0]["loss"] == approx(np.mean(losses), rel=1e-10)


def test_the_saved_head_is_the_one_that_learned(tmp_path):
    from transformers import AutoModelForMaskedLM

    pretraining = objective("mlm")
    inputs = texts().template.single_inputs(texts().passages.take(ROWS)).to_tensors()
    join_head(pretraining.encoder, pretraining.head).save_pretrained(tmp_path)
    saved = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    with torch.inference_mode():
        expected = masked_lm(pretraining)(**inputs).logits
        assert torch.allclose(saved(**inputs).logits, expected, atol=1e-4)  # its head in float32


@pytest.mark.parametrize("family", ["roberta", "distilbert", "electra"])
def test_other_families_get_their_own_head(family):
    from transformers import AutoConfig, AutoModel

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "dim": 16,
    }
    config = AutoConfig.for_model(
        family, vocab_size=30, n_layers=1, n_heads=2, hidden_dim=16, **sizes
    )
    encoder = AutoModel.from_config(config).eval()
    head = LanguageHead(encoder)
    torch.nn.init.normal_(head.bias)
    ids = torch.arange(5, 15)[None]
    whole = join_head(encoder, head).eval()
    with torch.inference_mode():
        states = head.norm(
            torch.nn.functional.gelu(head.dense(encoder(input_ids=ids).last_hidden_state))
        )
        expected = torch.nn.functional.linear(
            states, encoder.get_input_embeddings().weight, head.bias
        )
        assert torch.allclose(whole(input_ids=ids).logits, expected, atol=1e-5)


def test_equal_counts_of_hidden_tokens_give_transformers_batch_loss():
    pretraining = objective("mlm")
    whole, passages = masked_lm(pretraining), texts().passages.take(ROWS)
    seen, labels = VOCABULARY.hide(passages, 0.01, make_generator(STEP))  # one token each
    inputs, targets = padded(pretraining, seen, labels)
    expected = float(whole(**inputs, labels=targets).loss.detach())
    assert results("mlm", mask_probability=0.01)[0]["loss"] == approx(expected, rel=1e-10)


def test_a_block_is_berts_layer():
    from transformers.models.bert.modeling_bert import BertLayer

    config = objective("mlm").encoder.config
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    ours, theirs = Block(config).double().eval(), BertLayer(config).double().eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    attention = theirs.attention
    pairs = {
        "query": attention.self.query, "key": attention.self.key, "value": attention.self.value,
        "joined": attention.output.dense, "attended": attention.output.LayerNorm, "inner": theirs.intermediate.dense,
        "outer": theirs.output.dense, "transformed": theirs.output.LayerNorm,
    }  # fmt: skip
    for name, module in pairs.items():
        module.load_state_dict(getattr(ours, name).state_dict())
    x, visible = torch.randn(2, 5, 32).double(), torch.ones(2, 1, 5, dtype=torch.bool)
    visible[1, :, 3:] = False
    additive = (
        torch.zeros(2, 1, 1, 5)
        .double()
        .masked_fill(~visible[:, None], torch.finfo(torch.float64).min)
    )
    expected = theirs(x, attention_mask=additive)
    torch.testing.assert_close(
        ours(x, x, visible), expected[0] if isinstance(expected, tuple) else expected
    )


def test_what_is_not_visible_does_not_matter():
    torch.manual_seed(1)
    block = Block(objective("mlm").encoder.config).double().eval()
    asking, context = torch.randn(1, 4, 32).double(), torch.randn(1, 4, 32).double()
    visible = torch.tensor([[[True, False, True, True]] * 4])
    other = context.clone()
    other[0, 1] = 100.0
    torch.testing.assert_close(block(asking, context, visible), block(asking, other, visible))
    assert not torch.allclose(
        block(asking, context, visible), block(asking, other, torch.ones_like(visible))
    )


def test_retromae_equals_its_formula_written_out():
    """One passage, one position at a time: A_i = Σ_j softmax(q_i·k_j / √d over what i sees) v_j, per head."""
    pretraining = objective("retromae")
    pretraining.models.eval()
    row = ROWS[:1]
    values = pretraining.backward(Batch(row, row[:, None]), STEP)
    passage, block, encoder = texts().passages.take(row), pretraining.decoder, pretraining.encoder
    count = len(passage.ids)
    seen, labels = VOCABULARY.hide(passage, 0.3, make_generator(STEP))
    inputs, targets = padded(pretraining, seen, labels)
    hidden = encoder(**inputs).last_hidden_state
    mlm = float(masked_lm(pretraining)(**inputs, labels=targets).loss.detach())
    vector = hidden[0, 0]
    whole, _ = padded(pretraining, passage, labels)
    embedded = encoder.embeddings(whole["input_ids"])[0]
    keys = torch.cat([vector[None], embedded[1:]])  # H2
    asking = vector + encoder.embeddings.position_embeddings.weight[: count + 2]  # H1
    others = make_generator(STEP, 1, 0).random((count, count)) >= 0.5
    losses = []
    for i in range(1, count + 1):
        sees = [0, count + 1, *(j for j in range(1, count + 1) if j != i and others[i - 1, j - 1])]
        mixed = []
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)
            q = block.query(asking[i])[part]
            weights = torch.stack(
                [q @ block.key(keys[j])[part] / math.sqrt(8) for j in sees]
            ).softmax(0)
            mixed.append(
                sum(w * block.value(keys[j])[part] for w, j in zip(weights, sees, strict=True))
            )
        first = block.attended(asking[i] + block.joined(torch.cat(mixed)))
        out = block.transformed(first + block.outer(torch.nn.functional.gelu(block.inner(first))))
        logits = pretraining.head.norm(torch.nn.functional.gelu(pretraining.head.dense(out)))
        logits = encoder.embeddings.word_embeddings.weight @ logits + pretraining.head.bias
        losses.append(float(-logits.log_softmax(0)[int(passage.ids[i - 1])].detach()))
    assert values["mlm"] == approx(mlm, rel=1e-9)
    assert values["decoder"] == approx(np.mean(losses), rel=1e-9)
    assert values["loss"] == approx(mlm + np.mean(losses), rel=1e-9)


def test_span_contrast_by_hand():
    # two passages, two spans each: span 0's partner is span 1
    scores = torch.tensor([[9.0, math.log(3), 0.0, 0.0]])
    expected = -math.log(3 / 5)  # itself is left out
    assert float(span_contrast(scores, torch.tensor([0]), torch.tensor([4, 4, 7, 7]))) == approx(
        expected
    )
    # the second passage is the first again: its spans are not negatives
    assert float(span_contrast(scores, torch.tensor([0]), torch.tensor([4, 4, 4, 4]))) == approx(
        0.0
    )
    # a span of the second half among all: its partner stands before it
    assert float(span_contrast(scores, torch.tensor([3]), torch.tensor([4, 4, 7, 7]))) == approx(
        math.log(math.exp(9) + 3 + 1)
    )


@pytest.mark.parametrize("deleted", [0.0, 0.4])
def test_crop_is_a_softmax_over_the_other_spans(deleted):
    pretraining, passages = objective("crop"), texts().passages.take(ROWS)
    spans = []
    for side in (0, 1):
        draw = make_generator(STEP, side)
        span = crop(passages, SHARES, draw)
        spans.append(delete_tokens(span, deleted, draw) if deleted else span)
    if deleted:
        lengths = [len(crop(passages, SHARES, make_generator(STEP, 0)).ids), len(spans[0].ids)]
        assert lengths[1] < lengths[0]
    first, second = (
        pretraining.model.encode("query", span, texts().template, "fp32") for span in spans
    )
    scores = first @ second.T / 2.0
    losses = []
    for i, row in enumerate(ROWS):
        others = [j for j in range(len(ROWS)) if j == i or ROWS[j] != row]  # passage 3 stands twice
        losses.append(float((scores[i, others].logsumexp(0) - scores[i, i]).detach()))
    values, _ = results("crop", deletion_probability=deleted)
    assert values["loss"] == approx(np.mean(losses), rel=1e-10)


def test_cocondenser_is_the_sum_of_its_parts():
    pretraining = objective("cocondenser", pooling="mean")
    values = results("cocondenser", pooling="mean")[0]
    assert values["loss"] == approx(values["mlm"] + values["head"] + values["contrast"])
    twice = np.repeat(ROWS, 2)
    spans = crop(texts().passages.take(twice), SHARES, make_generator(STEP, 0))
    seen, labels = VOCABULARY.hide(spans, 0.15, make_generator(STEP, 1))
    whole, mlm, head, vectors = masked_lm(pretraining), [], [], []
    for row in range(len(twice)):
        inputs, targets = padded(
            pretraining, seen.take(np.array([row])), labels.take(np.array([row]))
        )
        mlm.append(float(whole(**inputs, labels=targets).loss.detach()))
        # embeddings, layer 1, layer 2
        states = pretraining.encoder(**inputs, output_hidden_states=True).hidden_states
        vectors.append(states[2][0].mean(0))
        hidden, visible = (
            torch.cat([vectors[-1][None], states[1][0, 1:]])[None],
            torch.ones(1, 1, states[1].shape[1]).bool(),
        )
        for block in pretraining.condenser:
            hidden = block(hidden, hidden, visible)
        logits = whole.cls(hidden)[0]
        at = targets[0] >= 0
        head.append(float(torch.nn.functional.cross_entropy(logits[at], targets[0][at]).detach()))
    scores = torch.stack(vectors) @ torch.stack(vectors).T / 2.0
    contrast = []
    for i, row in enumerate(twice):
        others = [j for j in range(len(twice)) if j == (i ^ 1) or twice[j] != row]
        contrast.append(float((scores[i, others].logsumexp(0) - scores[i, i ^ 1]).detach()))
    assert values["mlm"] == approx(np.mean(mlm), rel=1e-9)
    assert values["head"] == approx(np.mean(head), rel=1e-9)
    assert values["contrast"] == approx(np.mean(contrast), rel=1e-9)


def test_a_passage_without_tokens_teaches_nothing():
    pretraining = objective("mlm")
    _, labels = VOCABULARY.hide(
        Ragged(np.array([7, 8]), np.array([0, 0, 2])), 0.5, make_generator(STEP)
    )
    hidden = torch.randn(2, 4, 32).double()
    losses = pretraining.predict(hidden, labels)
    assert losses[0] == 0
    assert losses[1] > 0


def test_a_head_needs_a_layer_below_the_last():
    with pytest.raises(
        UserError, match=r"train.skip_from is 2, but the encoder has 2 layers; name an earlier one"
    ):
        objective("cocondenser", skip_from=2)
