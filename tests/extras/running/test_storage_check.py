"""A storage is asked once before anything runs, and has to answer in time."""

import socket
import time
import urllib.request

import pytest

from tandem.config.settings import ExecutionSettings
from tandem.errors import UserError
from tandem.extras.running import storage

PREFIX = "http://my-bucket/my-project"


class WebStorage:
    """A storage whose objects are pages of a server; so much of a plugin's provider as the check needs."""

    def __init__(self, url):
        self.url = url

    def object(self, query):
        return self

    def is_valid_query(self):
        return True

    def exists(self):
        urllib.request.urlopen(self.url).close()
        return True


@pytest.fixture
def mute():
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "http://{}:{}".format(*server.getsockname())


def test_a_storage_that_never_answers_is_named(mute, monkeypatch):
    monkeypatch.setattr(storage, "ANSWER_SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(UserError) as error:
        storage.check_storage(WebStorage(mute), PREFIX, ExecutionSettings())
    assert time.monotonic() - begun < 10
    words = "which cannot be read: no answer in 0.5 s; look at the bucket's name, the endpoint and"
    assert str(error.value).startswith(f"--default-storage-prefix is {PREFIX}, {words}")


def test_what_a_storage_answers_is_named(mute):
    with pytest.raises(UserError, match=r"which cannot be read: .*unknown url type: nothing"):
        storage.check_storage(WebStorage("nothing://here"), PREFIX, ExecutionSettings())


def test_a_manifest_is_no_target_where_its_archive_is_stored():
    storage.refuse_manifests(["all", "results/tiny/bm25/bm25.test-0123456789.tar"])
    with pytest.raises(UserError) as error:
        storage.refuse_manifests(["results/tiny/bm25/bm25.test-0123456789/stage.json"])
    allowed = "results are in object storage; allowed: results/tiny/bm25/bm25.test-0123456789.tar"
    assert str(error.value).endswith(allowed)
