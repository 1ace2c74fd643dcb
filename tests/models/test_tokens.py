"""Stage `tokens`: the stored ids are the tokenizer's own, truncated."""

import numpy as np

from tandem.data.collection import Collection, contents
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Tokens


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
    assert tokens.manifest.facts["passages"] == 60
    assert tokens.manifest.facts["queries"] == 60
