"""Stage `tokens`: the stored ids are the tokenizer's own, truncated."""

import numpy as np
import pytest

from tandem.data.collection import Collection, contents
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Ragged, Tokens, write_ragged


def test_stored_ids_are_the_tokenizers_own(tokens, dataset, encoder):
    opened, tokenizer = Tokens.open(tokens), load_tokenizer(encoder.folder / "hf")
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    assert len(opened.passages) == len(rows) == 60
    for i, row in enumerate(rows):
        text = contents(row["title"], row["text"])
        whole = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert opened.passages[i].tolist() == whole[:24]
    assert int(opened.passages.lengths(np.arange(60)).max()) == 24  # some passage was cut
    asked = list(Collection(dataset).queries("dev").values())
    assert opened.queries[20].tolist() == tokenizer(asked[0], add_special_tokens=False)["input_ids"]
    assert tokens.manifest["passages"] == 60
    assert tokens.manifest["queries"] == 60


def test_ragged_rows_may_be_empty(tmp_path):
    batches = [[[1, 2, 3], []], [], [[65535]]]
    assert write_ragged(tmp_path, "x", batches, "uint16") == (3, 4)
    ragged = Ragged.open(tmp_path, "x", "uint16")
    assert [ragged[i].tolist() for i in range(len(ragged))] == [[1, 2, 3], [], [65535]]
    assert ragged.lengths(np.array([2, 0, 1])).tolist() == [1, 3, 0]


@pytest.mark.parametrize("batches", [[], [[[], []]]])
def test_ragged_without_any_token(tmp_path, batches):
    rows, tokens = write_ragged(tmp_path, "x", batches, "uint32")
    ragged = Ragged.open(tmp_path, "x", "uint32")
    assert tokens == 0
    assert [ragged[i].tolist() for i in range(rows)] == [[]] * rows
