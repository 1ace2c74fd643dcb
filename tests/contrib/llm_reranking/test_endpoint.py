"""A server of the test speaks the protocol of OpenAI: what it answers, and what happens when it does not."""

import math
import socket
import time

import numpy as np
import pytest
from llm_server import completion

import tandem.contrib.llm_reranking.llm_rerank as rerank_stage
from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.extras.language_models.answers import AnswerStore

YES_NO = {"method": "yes_no", "form": "chat", "instruction": "Find the answer", "model": "tiny-gpt"}
LISTWISE = {"method": "listwise", "window": 6, "step": 3, "model": "tiny-gpt"}
SECRET = "sk-a-secret-that-stands-nowhere"


def passage_of(body):
    """The passage that a question is about."""
    return body["messages"][0]["content"].partition("Passage:")[2]


def likes(word):
    """A server that is surer of yes where the passage has a word."""

    def respond(body, number):
        return 200, completion(
            "Yes",
            {"Yes": -0.1, " no": -3.0} if word in passage_of(body) else {"No": -0.2, "maybe": -2.5},
        )

    return respond


def test_a_server_is_asked_for_the_likeliest_words(server, rerank, questions, monkeypatch):
    monkeypatch.setenv("TINY_KEY", SECRET)
    server.respond = likes("heron")
    artifact, runs = rerank({**YES_NO, "url": server.url}, {"url": server.url, "key": "TINY_KEY"})
    docs = questions[1]
    for ranking, scores in runs.values():
        assert set(ranking[:3]) == {doc for doc in docs[:6] if doc.startswith("heron")}
        # log-odds: -0.1 + 3.0; where yes is not among the likeliest words it gets the last one's: -2.5 + 0.2
        assert list(scores[:6]) == pytest.approx([2.9] * 3 + [-2.3] * 3, abs=1e-5)
    body = server.requests[0][1]
    assert {key for key, _ in server.requests} == {f"Bearer {SECRET}"}
    assert (body["model"], body["temperature"], body["logprobs"], body["max_tokens"]) == (
        "tiny-gpt",
        0,
        True,
        1,
    )
    facts = artifact.manifest.facts
    assert (facts["asked"], facts["prompt_tokens"], facts["answer_tokens"]) == (12, 1200, 36)
    files = [path for path in artifact.folder.parent.parent.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite" for path in files)
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("listed", "odds"),
    [
        # ln 1 - ln 1e-9: the chosen word alone, nothing is left for the other
        ({"Yes": 1}, 9 * math.log(10)),
        # .9, .06 and .03 leave .01, which is less than the last one's: ln .9 - ln .01
        ({"Yes": 0.9, "yes": 0.06, "Yeah": 0.03}, math.log(90)),
        # .9 and .02 leave .08: the last one's is less, ln .9 - ln .02
        ({"Yes": 0.9, "Yeah": 0.02}, math.log(45)),
    ],
)
def test_a_word_that_is_not_listed_has_what_the_listed_ones_leave_at_most(
    listed, odds, server, rerank
):
    logprobs = {word: math.log(share) for word, share in listed.items()}
    server.respond = lambda body, _: (
        200,
        completion("Yes", logprobs if "heron" in passage_of(body) else {"No": 0.0}),
    )
    _, runs = rerank({**YES_NO, "url": server.url}, {"url": server.url})
    for ranking, scores in runs.values():
        assert all(doc.startswith("heron") for doc in ranking[:3])
        assert list(scores[:6]) == pytest.approx([odds] * 3 + [-9 * math.log(10)] * 3, abs=1e-5)


class Unasked:
    """Must not be asked."""

    def compare(self, prompt, words):
        raise UserError("asked")


def test_what_an_earlier_rule_answered_is_asked_of_a_server_again(server, rerank):
    server.respond = likes("heron")
    artifact, _ = rerank({**YES_NO, "url": server.url}, {"url": server.url})
    prompt = server.requests[0][1]["messages"][0]["content"]
    [path] = artifact.folder.parent.parent.glob("answers/*.sqlite")
    kept = AnswerStore(path, Unasked, "odds of")
    assert kept.compare(prompt, ("yes", "no")).score in (pytest.approx(2.9), pytest.approx(-2.3))
    kept.close()
    earlier = AnswerStore(path, Unasked)  # `share of`
    with pytest.raises(UserError, match="asked"):
        earlier.compare(prompt, ("yes", "no"))
    earlier.close()


THOUGHT = {"<think>": -0.0001, "yes": -14.3, " no": -14.1}  # of a model that thinks first


def test_passages_about_which_nothing_is_said_come_last_and_a_warning_tells_of_them(
    server, rerank, questions
):
    good, docs = likes("otter"), questions[1]
    silent = (200, completion("<think>", {"<think>": -0.1, "Okay": -3.0}))
    server.respond = lambda body, n: silent if "heron" in passage_of(body) else good(body, n)
    params = {**YES_NO, "depth": 8, "url": server.url}
    artifact, runs = rerank(params, {"url": server.url})
    herons = [doc for doc in docs if doc.startswith("heron")]
    assert all(ranking[-len(herons) :] == herons for ranking, _ in runs.values())
    facts = artifact.manifest.facts
    assert facts["repaired"] == facts["unlikely"] == 2 * len(herons)
    [warning] = facts["warnings"]
    assert f"{2 * len(herons)} of 16 answers" in warning


@pytest.mark.parametrize("method", ["yes_no", "pairwise"])
def test_a_model_that_thinks_first_is_refused(method, server, rerank):
    """Its odds of yes against no are those of two words which it would never say there."""
    letters = {"<think>": -0.0001, "A": -14.3, "B": -14.1}
    server.respond = lambda *_: (
        200,
        completion("<think>", THOUGHT if method == "yes_no" else letters),
    )
    params, endpoint = {**YES_NO, "method": method, "url": server.url}, {"url": server.url}
    with pytest.raises(
        UserError, match=r"answers give .* below 0\.05 .*<think>.*enable_thinking: false"
    ) as error:
        rerank(params, endpoint)
    assert "\n" not in str(error.value)
    artifact, _ = rerank({**params, "unlikely_below": 0}, endpoint)
    assert (artifact.manifest.facts["unlikely"], "warnings" in artifact.manifest.facts) == (
        0,
        False,
    )


def test_it_is_refused_before_all_is_asked_and_paid(
    server, make_job, write_ranked, dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(rerank_stage, "ANSWERS_BEFORE_REFUSAL", 12)
    server.respond = lambda *_: (200, completion("<think>", THOUGHT))
    queries, docs = (
        Collection(dataset).queries("test"),
        Collection(dataset).doc_ids().to_pylist()[:6],
    )
    ranked = [(query, docs, np.arange(6, 0, -1.0)) for query in queries]
    pool = write_ranked(
        "bm25", tmp_path / "x/bm25/bm25-0123456789", {"depth": 6}, {"dataset": dataset}, ranked
    )
    params, endpoint = {**YES_NO, "url": server.url, "depth": 6}, {"url": server.url, "at_once": 1}
    out = tmp_path / "x/rerank_llm/llm-0123456789"
    with pytest.raises(UserError, match="12 of the first 12 answers"):
        rerank_stage.run(
            make_job(
                "rerank_llm", out, params, {"dataset": dataset, "run": pool}, {"endpoint": endpoint}
            )
        )
    assert 12 <= len(server.requests) < 6 * len(queries) / 2
    assert not (out / "stage.json").exists()


def test_a_few_answers_that_begin_with_other_words_are_counted_and_warned_of(server, rerank):
    good = likes("heron")
    server.respond = lambda body, n: (
        (200, completion("<think>", THOUGHT)) if n <= 3 else good(body, n)
    )
    artifact, _ = rerank({**YES_NO, "url": server.url}, {"url": server.url})
    assert (artifact.manifest.facts["unlikely"], artifact.manifest.facts["repaired"]) == (3, 0)
    [warning] = artifact.manifest.facts["warnings"]
    assert "3 of 12 answers" in warning


def test_all_that_a_server_needs_to_be_told_reaches_it(server, rerank):
    server.respond = lambda body, number: (200, completion("[6] > [5] > [4] > [3] > [2] > [1]"))
    kwargs, more = (
        {"enable_thinking": False},
        {"reasoning_effort": "minimal", "service": {"tier": [1, "a"]}},
    )
    params = {
        "chat_template_kwargs": kwargs,
        "max_completion_tokens": 900,
        "temperature": None,
        "extra_body": more,
    }
    rerank({**LISTWISE, **params, "url": server.url}, {"url": server.url})
    body = server.requests[0][1]
    assert body["chat_template_kwargs"] == kwargs
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (900, "minimal")
    assert body["service"] == {"tier": [1, "a"]}
    assert not {"max_tokens", "temperature"} & body.keys()
    rerank({**LISTWISE, "temperature": 0.5, "url": server.url}, {"url": server.url}, "warm")
    body = server.requests[-1][1]
    assert (body["temperature"], body["max_tokens"], "chat_template_kwargs" in body) == (
        0.5,
        36,
        False,
    )
    assert len(server.requests) == 4  # of another question the answer is another


@pytest.mark.parametrize("text", [f"{SECRET}\n", f"  {SECRET}\r\n"])
def test_a_key_may_end_as_files_do(text, server, rerank, monkeypatch):
    monkeypatch.setenv("TINY_KEY", text)
    server.respond = likes("heron")
    rerank({**YES_NO, "url": server.url}, {"url": server.url, "key": "TINY_KEY"})
    assert {key for key, _ in server.requests} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize("sign", ["ü", " ", "\n", "\x7f"])
def test_what_is_no_key_is_one_line_without_it(sign, server, rerank, monkeypatch):
    monkeypatch.setenv("TINY_KEY", f"{SECRET}{sign}x")
    with pytest.raises(
        UserError, match=f"TINY_KEY holds no key: its character {len(SECRET) + 1} of"
    ) as error:
        rerank({**YES_NO, "url": server.url}, {"url": server.url, "key": "TINY_KEY"})
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


def test_secrets_of_an_address_are_used_and_not_shown(server, rerank):
    url = server.url.replace("//", "//me:hunter2hunter2@") + "?api_key=abcdefgh&api-version=7"
    server.respond = lambda *_: (
        401,
        {"error": {"message": f"no access by {url}, nor by hunter2hunter2"}},
    )
    with pytest.raises(UserError, match="status 401") as error:
        rerank({**YES_NO, "url": url}, {"url": url, "retries": 0})
    assert "hunter2" not in str(error.value).replace("nor by hunter2hunter2", "")
    assert "abcdefgh" not in str(error.value)
    server.respond = likes("heron")
    artifact, _ = rerank({**YES_NO, "url": url}, {"url": url, "retries": 0})
    assert server.paths[-1] == "/v1/chat/completions?api_key=abcdefgh&api-version=7"
    assert server.requests[-1][0].startswith("Basic ")
    text = (artifact.folder / "stage.json").read_text()
    assert "hunter2" not in text
    assert "abcdefgh" not in text


def test_a_server_that_repeats_the_key_is_not_repeated(server, rerank, monkeypatch, capsys):
    monkeypatch.setenv("TINY_KEY", SECRET)
    server.respond = lambda *_: (
        401,
        {"error": {"message": f"Incorrect API key provided: {SECRET}"}},
    )
    with pytest.raises(UserError, match="status 401: .*Incorrect API key provided") as error:
        rerank({**YES_NO, "url": server.url}, {"url": server.url, "key": "TINY_KEY", "retries": 0})
    assert SECRET not in str(error.value)
    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://host:99999/v1", "https:///v1", "http://me:word@/v1"]
)
def test_what_is_no_address_is_one_line(url, rerank):
    with pytest.raises(
        UserError, match=r"endpoint\.url is .*; allowed: http://host:port/v1"
    ) as error:
        rerank({**YES_NO, "url": url}, {"url": url})
    assert "word" not in str(error.value)


def test_a_server_orders_windows_and_is_repaired_and_counted(server, rerank, questions):
    server.respond = lambda body, number: (200, completion("[6] > [5] > [4] > [3] > [2] > [1]"))
    artifact, runs = rerank({**LISTWISE, "url": server.url}, {"url": server.url})
    docs = questions[1]
    assert all(ranking == [*docs[5::-1], *docs[6:]] for ranking, _ in runs.values())
    assert artifact.manifest.facts["repaired"] == 0
    server.respond = lambda body, number: (200, completion("[2] and nothing else"))
    artifact, runs = rerank(
        {**LISTWISE, "model": "other", "url": server.url}, {"url": server.url}, "other"
    )
    assert all(ranking == [docs[1], docs[0], *docs[2:]] for ranking, _ in runs.values())
    assert artifact.manifest.facts["repaired"] == 2


def test_a_rate_limit_is_waited_for(server, rerank):
    good = likes("heron")
    server.respond = lambda body, n: (
        (429, {"error": {"message": "slow down"}}) if n <= 2 else good(body, n)
    )
    artifact, _ = rerank(
        {**YES_NO, "url": server.url}, {"url": server.url, "retries": 3, "at_once": 1}
    )
    assert (len(server.requests), artifact.manifest.facts["asked"]) == (14, 12)


def slow(body, number):
    time.sleep(2.5)
    return 200, completion("Yes", {"Yes": -0.1})


@pytest.mark.parametrize(
    ("respond", "line"),
    [
        (lambda *_: (500, {"error": {"message": "out\nof order"}}), "status 500: .*out of order"),
        (
            lambda *_: (404, {"error": {"message": "no model tiny-gpt"}}),
            "status 404: .*no model tiny-gpt",
        ),
        (
            lambda *_: (200, b"<html>what</html>"),
            "gives no chat completion|is not a chat completion",
        ),
        (
            lambda *_: (200, {"choices": []}),
            "its response is not a chat completion as it was asked for",
        ),
        (slow, "no answer within 1 s, 1 times"),
    ],
    ids=["broken", "unknown", "garbage", "empty", "slow"],
)
def test_what_a_server_does_wrong_is_one_line_and_answers_are_kept(respond, line, server, rerank):
    good, endpoint = likes("heron"), {"url": server.url, "retries": 0, "timeout": 1.0, "at_once": 1}
    server.respond = lambda body, number: (
        good(body, number) if number <= 8 else respond(body, number)
    )
    with pytest.raises(UserError, match=line) as error:
        rerank({**YES_NO, "url": server.url}, endpoint)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("what is answered is kept: run the same command again")
    server.respond = good
    artifact, runs = rerank({**YES_NO, "url": server.url}, endpoint)
    assert (artifact.manifest.facts["asked"], artifact.manifest.facts["known"]) == (4, 8)
    assert len(runs) == 2


def test_a_server_that_is_down_and_a_key_that_is_not_set_are_one_line(rerank, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(UserError, match=f"{url}: cannot be reached, 1 times"):
        rerank({**YES_NO, "url": url}, {"url": url, "retries": 0})
    monkeypatch.delenv("TINY_KEY", raising=False)
    with pytest.raises(
        UserError, match="the environment variable TINY_KEY is not set; it holds the key"
    ):
        rerank({**YES_NO, "url": url}, {"url": url, "key": "TINY_KEY"})
