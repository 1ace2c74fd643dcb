"""Inputs against a plain loop over the rows."""

import numpy as np
import pytest
import torch

from tandem.models.ragged import Ragged
from tandem.models.tokens import Template

TEMPLATES = [
    Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0),
    Template(((5, 6), ()), ((5,), (7, 7), ()), (1, 0, 1, 1, 0), 9),
    Template(((2,), (3,)), ((2,), (3,), (3,)), None, 1),
]


def loop(rows, template, multiple):
    """Tensors of rows of (ids, segment) parts, one token after the other."""
    lists = [[(int(token), segment) for part, segment in row for token in part] for row in rows]
    width = -(-max(map(len, lists), default=0) // multiple) * multiple
    inputs = {"input_ids": [], "attention_mask": [], "token_type_ids": []}
    for row in lists:
        filler = [0] * (width - len(row))
        inputs["input_ids"].append([token for token, _ in row] + [template.pad] * len(filler))
        inputs["attention_mask"].append([1] * len(row) + filler)
        inputs["token_type_ids"].append([segment for _, segment in row] + filler)
    if template.types is None:
        del inputs["token_type_ids"]
    return inputs


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("multiple", [1, 8])
def test_padded_inputs_equal_a_plain_loop(template, multiple):
    rng = np.random.default_rng(1)
    first, second = (
        [rng.integers(10, 99, length).astype(np.uint16) for length in rng.integers(0, 20, 30)]
        for _ in "ab"
    )
    before, after = template.single
    expected = loop([((before, 0), (text, 0), (after, 0)) for text in first], template, multiple)
    for texts in (first, Ragged.of(first)):
        inputs = template.single_inputs(texts).to_tensors(multiple)
        assert {name: tensor.tolist() for name, tensor in inputs.items()} == expected
        assert {tensor.dtype for tensor in inputs.values()} == {torch.int64}
    before, between, after = template.pair
    types = template.types or (0, 0, 0, 0, 0)
    rows = [
        tuple(zip((before, a, between, b, after), types, strict=True))
        for a, b in zip(first, second, strict=True)
    ]
    inputs = template.pair_inputs(Ragged.of(first), Ragged.of(second)).to_tensors(multiple)
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == loop(
        rows, template, multiple
    )


def test_more_rows_are_one_padding_id_each():
    inputs = TEMPLATES[1].single_inputs(Ragged.of([np.array([10, 11])])).fill_up(3).to_tensors(8)
    assert inputs["input_ids"].tolist() == [[5, 6, 10, 11, 9, 9, 9, 9], [9] * 8, [9] * 8]
    assert inputs["attention_mask"].tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1] + [0] * 7,
        [1] + [0] * 7,
    ]
    assert inputs["token_type_ids"].sum() == 0
