"""A server of the test speaks the protocol of OpenAI: what it answers, and what happens when it does not."""

import socket
import time

import pytest
from llm_server import completion

from tandem.errors import UserError

YES_NO = {"method": "yes_no", "form": "chat", "instruction": "Find the answer", "model": "tiny-gpt"}
LISTWISE = {"method": "listwise", "window": 6, "step": 3, "model": "tiny-gpt"}
SECRET = "sk-a-secret-that-stands-nowhere"


def likes(word):
    """A server that is surer of yes where the passage has a word."""

    def respond(body, number):
        passage = body["messages"][0]["content"].partition("Passage:")[2]
        return 200, completion("Yes", {"Yes": -0.1, " no": -3.0} if word in passage else {"No": -0.2, "maybe": -2.5})

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
    assert (body["model"], body["temperature"], body["logprobs"], body["max_tokens"]) == ("tiny-gpt", 0, True, 1)
    facts = artifact.manifest.facts
    assert (facts["asked"], facts["prompt_tokens"], facts["answer_tokens"]) == (12, 1200, 36)
    files = [path for path in artifact.folder.parent.parent.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite" for path in files)
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_passages_about_which_nothing_is_said_keep_their_order_and_a_warning_tells_of_them(server, rerank, questions):
    server.respond = lambda *_: (200, completion("<think>", {"<think>": -0.1, "Okay": -3.0}))
    artifact, runs = rerank({**YES_NO, "url": server.url}, {"url": server.url})
    assert all(ranking == questions[1] for ranking, _ in runs.values())
    [warning] = artifact.manifest.facts["warnings"]
    assert "12 of 12 answers" in warning


def test_a_server_orders_windows_and_is_repaired_and_counted(server, rerank, questions):
    server.respond = lambda body, number: (200, completion("[6] > [5] > [4] > [3] > [2] > [1]"))
    artifact, runs = rerank({**LISTWISE, "url": server.url}, {"url": server.url})
    docs = questions[1]
    assert all(ranking == [*docs[5::-1], *docs[6:]] for ranking, _ in runs.values())
    assert artifact.manifest.facts["repaired"] == 0
    server.respond = lambda body, number: (200, completion("[2] and nothing else"))
    artifact, runs = rerank({**LISTWISE, "model": "other", "url": server.url}, {"url": server.url}, "other")
    assert all(ranking == [docs[1], docs[0], *docs[2:]] for ranking, _ in runs.values())
    assert artifact.manifest.facts["repaired"] == 2


def test_a_rate_limit_is_waited_for(server, rerank):
    good = likes("heron")
    server.respond = lambda body, n: (429, {"error": {"message": "slow down"}}) if n <= 2 else good(body, n)
    artifact, _ = rerank({**YES_NO, "url": server.url}, {"url": server.url, "retries": 3, "at_once": 1})
    assert (len(server.requests), artifact.manifest.facts["asked"]) == (14, 12)


def slow(body, number):
    time.sleep(2.5)
    return 200, completion("Yes", {"Yes": -0.1})


@pytest.mark.parametrize(
    ("respond", "line"),
    [
        (lambda *_: (500, {"error": {"message": "out\nof order"}}), "status 500: .*out of order"),
        (lambda *_: (404, {"error": {"message": "no model tiny-gpt"}}), "status 404: .*no model tiny-gpt"),
        (lambda *_: (200, b"<html>what</html>"), "gives no chat completion|is no chat completion"),
        (lambda *_: (200, {"choices": []}), "its response is no chat completion as it was asked for"),
        (slow, "no answer within 1 s, 1 times"),
    ],
    ids=["broken", "unknown", "garbage", "empty", "slow"],
)
def test_what_a_server_does_wrong_is_one_line_and_answers_are_kept(respond, line, server, rerank):
    good, endpoint = likes("heron"), {"url": server.url, "retries": 0, "timeout": 1.0, "at_once": 1}
    server.respond = lambda body, number: good(body, number) if number <= 8 else respond(body, number)
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
    with pytest.raises(UserError, match="the environment variable TINY_KEY is not set; it holds the key"):
        rerank({**YES_NO, "url": url}, {"url": url, "key": "TINY_KEY"})
