"""Queries become the token ids that the stage `tokens` gives them."""

import pyarrow.parquet as pq

from tandem.contrib.demo.served_models import QueryTokenizer
from tandem.models.tokens import Tokens


def test_a_query_has_the_ids_of_the_stage(dataset, tokens, encoder):
    stored, tokenizer = Tokens.open(tokens).queries, QueryTokenizer(encoder.folder / "hf", tokens)
    texts = pq.read_table(dataset.path("queries.parquet"))["text"].to_pylist()
    assert len(texts) == len(stored) > 0
    for row, text in enumerate(texts):
        assert tokenizer.ids(text).tolist() == stored[row].tolist()
