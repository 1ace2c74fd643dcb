"""`transformers serve` as endpoint: the same answers as of the model in this process."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tandem.errors import UserError

LISTWISE = {"method": "listwise", "window": 6, "step": 3}
YES_NO = {"method": "yes_no", "form": "chat", "instruction": "Find the answer"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a server that loads the model that it is asked for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    command = [str(program), "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    log = tmp_path_factory.mktemp("served") / "log.txt"
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            end = time.monotonic() + 300
            while not is_up(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def is_up(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def test_a_served_model_gives_the_order_of_the_same_model_in_this_process(
    served, rerank, language_model
):
    model = str(language_model("llama"))
    local, here = rerank({**LISTWISE, "model": model})
    artifact, there = rerank({**LISTWISE, "model": model, "url": served}, {"url": served}, "served")
    assert {query: docs for query, (docs, _) in there.items()} == {
        query: docs for query, (docs, _) in here.items()
    }
    facts = ("asked", "prompt_tokens", "answer_tokens", "repaired")
    assert [artifact.manifest.facts[name] for name in facts] == [
        local.manifest.facts[name] for name in facts
    ]


def test_a_server_without_probabilities_of_words_is_one_line(served, rerank, language_model):
    with pytest.raises(
        UserError,
        match="gives no probabilities of words .*; take method listwise, or another server",
    ):
        rerank({**YES_NO, "model": str(language_model("llama")), "url": served}, {"url": served})
