"""Stage `tokens`: the stored ids are the tokenizer's own, truncated."""

import json
import shutil

import numpy as np

from tandem.data.collection import Collection, join_contents
from tandem.models.hub import load_tokenizer
from tandem.models.tokenisation import run
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact


def test_stored_ids_are_the_tokenizers_own(tokens, dataset, encoder):
    opened, tokenizer = Tokens.open(tokens), load_tokenizer(encoder.folder / "hf")
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    assert len(opened.passages) == len(rows) == 60
    for i, row in enumerate(rows):
        text = join_contents(row["title"], row["text"])
        whole = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert opened.passages[i].tolist() == whole[:24]
    assert int(opened.passages.lengths(np.arange(60)).max()) == 24  # some passage was cut
    queries = list(Collection(dataset).queries("dev").values())
    assert (
        opened.queries[20].tolist() == tokenizer(queries[0], add_special_tokens=False)["input_ids"]
    )
    ids = tokenizer(
        [join_contents(row["title"], row["text"]) for row in rows], add_special_tokens=False
    )["input_ids"]
    cut = sum(len(own) > 24 for own in ids)
    assert tokens.manifest.facts["truncated"] == {"passages": cut, "queries": 0}
    line = f"{cut} of 60 passage texts are longer than lengths.passage (24) and cut: {cut / 60:.1%}"
    assert tokens.manifest.facts["warnings"] == [line]
    assert tokens.manifest.facts["passages"] == 60
    assert tokens.manifest.facts["queries"] == 60


def test_a_few_cut_texts_are_a_line_of_the_log_and_no_warning(
    make_job, make_dataset, encoder, tmp_path, capsys
):
    # Of 101 passages one has 25 words, one more than fits: less than 1 %.
    passages = [("long", "", "otter " * 25), *((f"d{at}", "", "otter") for at in range(100))]
    inputs = {
        "dataset": make_dataset(tmp_path / "dataset-0123456789", passages),
        "encoder": encoder,
    }
    job = make_job(
        "tokens", tmp_path / "ids-0123456789", {"query_length": 16, "passage_length": 24}, inputs
    )
    run(job)
    facts = open_artifact(job.out).manifest.facts
    assert facts["truncated"] == {"passages": 1, "queries": 0}
    assert "warnings" not in facts
    assert (
        "1 of 101 passage texts are longer than lengths.passage (24) and cut"
        in capsys.readouterr().err
    )


def test_ids_beyond_two_bytes_are_kept_though_the_tokens_are_few(
    make_job, dataset, encoder, tmp_path
):
    folder = shutil.copytree(encoder.folder, tmp_path / "encoder-0123456789")
    path = folder / "hf/tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["otter"] = 70_000
    path.write_text(json.dumps(tokenizer))
    params = {"query_length": 16, "passage_length": 24}
    inputs = {"dataset": dataset, "encoder": open_artifact(folder, verify=False)}
    job = make_job("tokens", tmp_path / "ids-0123456789", params, inputs)
    run(job)
    ids = Tokens.open(open_artifact(job.out)).passages.ids
    assert ids.max() == 70_000
