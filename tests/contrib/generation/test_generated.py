"""Stage `generated`: shards, restarts, queries, a server, and what is refused."""

import json

import pyarrow.parquet as pq
import pytest
from llm_server import completion, serving

import tandem.stages
from tandem.contrib.generation import texts
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.stages.base import Part
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

OPTIONS = {
    "length": 32,
    "tokens": 8,
    "number": 2,
    "precision": "fp32",
    "seed": 7,
    "batch_tokens": 256,
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of 16 passages, so that the tiny collection has four."""
    from dataclasses import replace

    kind = tandem.stages.KINDS["generated"]
    monkeypatch.setitem(tandem.stages.KINDS, "generated", replace(kind, part=Part(16, "passages")))


@pytest.fixture
def generated_job(make_job, dataset, generator, tmp_path):
    """`generated_job(name, params, inputs, **execution)`."""

    def make(name, params=None, inputs=None, **execution):
        roles = {"dataset": dataset, "generator": generator} if inputs is None else inputs
        how = {"workers": 1} | execution
        return make_job(
            "generated",
            tmp_path / "generated" / f"{name}-0123456789",
            OPTIONS | (params or {}),
            roles,
            how,
        )

    return make


def rows(job):
    return pq.read_table(job.out / "generated.parquet").to_pylist()


def test_every_passage_gets_its_texts_in_order(generated_job, dataset):
    job = generated_job("whole")
    texts.run(job)
    ids = Collection(dataset).doc_ids().to_pylist()
    assert [(row["id"], row["number"]) for row in rows(job)] == [
        (doc, n) for doc in ids for n in range(2)
    ]
    written = {row["id"]: row["text"] for row in rows(job) if row["number"] == 0}
    assert written["otter-3"] == "what does the otter eat"
    assert all(row["log_likelihood"] < 0 < row["tokens"] <= 8 for row in rows(job))
    facts = open_artifact(job.out).manifest.facts
    assert (facts["texts"], facts["read"]) == (120, 60)
    assert not (job.out / "work").exists()


def test_shards_and_restarts_change_no_byte(generated_job, monkeypatch):
    whole, parts = generated_job("whole"), generated_job("parts")
    texts.run(whole)
    for shard in (1, 0):
        shard_job = generated_job("parts", shard=shard, shards=3)
        assert texts.run_shard(shard_job)["parts"] == [
            number for number in range(4) if number % 3 == shard
        ]
    seen = []
    write = texts.Generating.write_part

    def counted(self, span, progress, path):
        seen.append(span)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return write(self, span, progress, path)

    monkeypatch.setattr(texts.Generating, "write_part", counted)
    shutil_job = generated_job("killed")
    with pytest.raises(KeyboardInterrupt):
        texts.run(shutil_job)
    texts.run(generated_job("killed"))
    # the finished part is not made again
    assert [span.start // 16 for span in seen] == [0, 1, 1, 2, 3]
    seen.clear()
    texts.run(parts)
    assert [span.start // 16 for span in seen] == [2]
    for job in (parts, shutil_job):
        assert sha256(job.out / "generated.parquet") == sha256(whole.out / "generated.parquet")


def test_more_texts_and_fewer_passages_leave_the_others_as_they_are(generated_job):
    whole, more, fewer = (
        generated_job("whole"),
        generated_job("more", {"number": 4}),
        generated_job("few", {"passages": 9}),
    )
    for job in (whole, more, fewer):
        texts.run(job)
    key = ("id", "number", "text")
    every = {tuple(row[name] for name in key) for row in rows(more)}
    assert {tuple(row[name] for name in key) for row in rows(whole)} < every
    chosen = rows(fewer)
    assert len(chosen) == 18
    assert {tuple(row[name] for name in key) for row in chosen} < every


def test_queries_can_be_read(generated_job):
    params = {
        "side": "queries",
        "split": "test",
        "prompt": "{query}",
        "method": "greedy",
        "number": 1,
    }
    job = generated_job("queries", params)
    texts.run(job)
    assert [row["id"] for row in rows(job)][:2] == ["test-otter", "test-heron"]
    assert len(rows(job)) == 20


def answering(prefix=""):
    """A server that asks about the last word before the prompt's end, as often as it is asked."""

    def respond(body, number):
        text = body["messages"][0]["content"]
        answer = completion(
            f" {prefix}who is {text.split()[1]} {body['seed']}?\nPassage 2: ", {"who": -0.5}
        )
        return 200, answer

    return respond


@pytest.fixture
def server():
    with serving() as httpd:
        httpd.respond = answering()
        yield httpd


def asked(url, **params):
    model = {"model": "tiny-gpt", "url": url, "characters": 40}
    return {"asked": model, "until": "\n", "seed": 42, **params}


def test_a_server_writes_texts_and_what_it_answered_is_kept(generated_job, dataset, server):
    params = asked(server.url, prompt="Passage: {passage}\nQuestion:", passages=20)
    broken = answering()

    def failing(body, number):
        return (500, {"error": "down"}) if number > 29 else broken(body, number)

    server.respond = failing
    job = generated_job(
        "asked",
        params,
        {"dataset": dataset},
        endpoint={"url": server.url, "retries": 0, "at_once": 1},
    )
    with pytest.raises(UserError, match="500"):
        texts.run(job)
    paid = len(server.requests)
    finished = list(job.out.parent.rglob("*.parquet"))
    assert finished  # a part; another process writes the others
    server.respond = answering()
    texts.run(job)
    # every answer that was given before is used
    assert len(server.requests) - paid == 40 - 29
    written = rows(job)
    assert len(written) == 40
    assert {row["text"].rpartition(" ")[2] for row in written} == {"0?", "1?"}
    assert all(
        row["text"].startswith("who is") and "Passage 2" not in row["text"] for row in written
    )
    assert {row["log_likelihood"] for row in written} == {-0.5}
    body = server.requests[0][1]
    passage = body["messages"][0]["content"].removeprefix("Passage: ").removesuffix("\nQuestion:")
    assert len(passage) <= 40
    facts = open_artifact(job.out).manifest.facts
    # 100 tokens of a prompt and 3 of an answer, whichever process asked
    assert facts["asked"] + facts["known"] == 40
    assert (facts["prompt_tokens"], facts["answer_tokens"]) == (4000, 120)
    assert any("40 characters" in line for line in facts["warnings"])
    assert "sk-" not in json.dumps(facts)


def test_a_server_that_refuses_logprobs_is_asked_without_them(generated_job, dataset, server):
    def refusing(body, number):
        if "logprobs" in body:
            return 400, {"error": {"message": "This model does not support `logprobs`."}}
        return 200, completion("who is it?")

    server.respond = refusing
    job = generated_job(
        "asked",
        asked(server.url, number=1),
        {"dataset": dataset},
        endpoint={"url": server.url, "at_once": 1},
    )
    texts.run(job)
    with_logprobs = ["logprobs" in body for _, body in server.requests]
    assert with_logprobs.count(False) == 60
    assert with_logprobs[3:] == [False] * (len(with_logprobs) - 3)
    written = rows(job)
    assert [row["text"] for row in written] == ["who is it?"] * 60
    assert {row["log_likelihood"] for row in written} == {None}


def test_another_mistake_of_a_request_is_not_asked_again(generated_job, dataset, server):
    server.respond = lambda body, number: (400, {"error": {"message": "unknown model"}})
    endpoint = {"url": server.url, "at_once": 1}
    job = generated_job("asked", asked(server.url), {"dataset": dataset}, endpoint=endpoint)
    with pytest.raises(UserError, match="status 400: .*unknown model"):
        texts.run(job)
    assert all("logprobs" in body for _, body in server.requests)


def test_empty_texts_of_a_small_part_are_counted(generated_job, dataset, server):
    """The last part has twelve texts: that all are empty may be chance."""
    server.respond = lambda body, number: (200, completion("" if number > 48 else "who is it?"))
    params = asked(server.url, number=1)
    endpoint = {"url": server.url, "at_once": 1}
    job = generated_job("some", params, {"dataset": dataset}, endpoint=endpoint)
    texts.run(job)
    assert [row["text"] for row in rows(job)] == ["who is it?"] * 48 + [""] * 12
    facts = open_artifact(job.out).manifest.facts
    assert (facts["texts"], facts["empty"]) == (60, 12)
    assert any("12 of 60 generated texts are empty" in line for line in facts["warnings"])


def test_a_model_thinks_before_it_writes_and_its_thoughts_are_no_text(
    generated_job, dataset, server
):
    """The second text of each passage is cut off while the model still thinks."""

    def respond(body, number):
        thoughts = "<think>\nwho is this?\n"
        ended = f"{thoughts}</think>\nwho swims?\n"
        return 200, completion(ended if body["seed"] == 0 else thoughts)

    server.respond = respond
    job = generated_job(
        "thinks",
        asked(server.url, passages=2),
        {"dataset": dataset},
        endpoint={"url": server.url},
    )
    texts.run(job)
    assert [row["text"] for row in rows(job)] == ["who swims?", "", "who swims?", ""]


def test_another_seed_asks_a_server_anew(generated_job, dataset, server):
    """Texts of the usual seed, 42, are asked for by their numbers."""

    def ask(seed):
        params = asked(server.url, passages=3, seed=seed)
        execution = {"endpoint": {"url": server.url, "at_once": 1}}
        texts.run(generated_job(f"seed-{seed}", params, {"dataset": dataset}, **execution))
        return {row["text"].rpartition(" ")[2] for row in rows(generated_job(f"seed-{seed}"))}

    assert ask(42) == {"0?", "1?"}
    seven, eight = ask(7), ask(8)
    assert len(seven | eight | {"0?", "1?"}) == 6
    assert len(server.requests) == 18
    ask(7)
    assert len(server.requests) == 18


def test_a_part_of_a_hundred_empty_texts_ends_the_stage(generated_job, dataset, server):
    """A part of 16 passages with 7 texts each; the other parts are not asked for."""
    server.respond = lambda body, number: (200, completion("\n"))
    params = asked(server.url, number=7)
    endpoint = {"url": server.url, "at_once": 1}
    job = generated_job("many", params, {"dataset": dataset}, endpoint=endpoint)
    with pytest.raises(UserError, match="all 112 texts of .* are empty"):
        texts.run(job)
    assert len(server.requests) == 112


def test_what_cannot_be_generated_is_one_line(generated_job, encoder, dataset, server):
    server.respond = lambda body, number: (200, completion("\n"))
    empty = generated_job(
        "empty", asked(server.url), {"dataset": dataset}, endpoint={"url": server.url}
    )
    with pytest.raises(UserError, match="all 120 texts are empty"):
        texts.run(empty)
    with pytest.raises(UserError, match="no decoder"):
        texts.run(generated_job("encoder", None, {"dataset": dataset, "generator": encoder}))
    with pytest.raises(UserError, match=r"lacks \{query\}"):
        texts.run(generated_job("prompt", {"side": "queries", "split": "test"}))
    for prompt in ("a question:", "{passage} {passage}"):
        with pytest.raises(UserError, match=r"prompt .*\{passage\}"):
            generated_job("nothing", {"prompt": prompt})
    with pytest.raises(UserError, match="number is 2, but method greedy"):
        generated_job("greedy", {"method": "greedy"})
