"""Downloads from a real server that can cut the connection, change a file, and refuse ranges."""

import hashlib
import json
import signal
import subprocess
import sys
import time

import pytest
from download_server import BYTES, SHA256, names

from tandem.config.datasets import File
from tandem.config.settings import Mirror
from tandem.data.fetch import fetch, get_cache_path, list_alternatives
from tandem.errors import UserError
from tandem.extras.byte_sizes import format_bytes

pytestmark = pytest.mark.usefixtures("data_folder")


def get(server, target, path="/d/x.bin", **expected):
    return fetch(File(url=f"{server.url}{path}", **expected), target, pause=0.01)


def test_a_cut_connection_goes_on_where_it_was(server, tmp_path, capsys):
    server.cuts = [1_000_000, 700_000]
    path = get(server, tmp_path / "x.bin", sha256=SHA256, bytes=3_000_000)
    assert path.read_bytes() == BYTES
    starts = [int(header[6:-1]) for _, header in server.requests[1:]]
    assert server.requests[0][1] is None
    assert 900_000 < starts[0] <= 1_000_000
    assert starts[0] < starts[1] <= starts[0] + 700_000
    assert names(tmp_path) == ["x.bin"]
    assert "the connection failed" in capsys.readouterr().err


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server, tmp_path):
    server.cuts, server.answers = [1_000_000], [200, 404]
    with pytest.raises(UserError, match="404 Not Found"):
        get(server, tmp_path / "x.bin")
    assert (tmp_path / "x.bin.part").stat().st_size > 900_000
    server.files["/d/x.bin"] = changed = BYTES[::-1]
    server.requests.clear()
    assert get(server, tmp_path / "x.bin").read_bytes() == changed
    # it did ask for the rest; If-Range made the server send all
    assert server.requests[0][1] == "bytes=1000000-"


def test_a_shorter_file_than_the_part_is_fetched_from_the_start(server, tmp_path):
    server.cuts, server.answers, server.validators = [1_000_000], [200, 404], False
    short = BYTES[500:90_000]
    sha256 = hashlib.sha256(short).hexdigest()
    with pytest.raises(UserError, match="404"):
        get(server, tmp_path / "x.bin", sha256=sha256)
    server.files["/d/x.bin"] = short
    assert get(server, tmp_path / "x.bin", sha256=sha256).read_bytes() == short


def test_without_a_validator_only_a_checksum_lets_a_part_stand(server, tmp_path):
    for sha256, resumed in ((None, False), (SHA256, True)):
        server.cuts, server.validators = [1_000_000], False
        server.requests.clear()
        assert get(server, tmp_path / f"{resumed}.bin", sha256=sha256).read_bytes() == BYTES
        assert (server.requests[1][1] is not None) == resumed


def test_what_was_resumed_wrongly_is_fetched_again(server, tmp_path):
    server.validators = False
    (tmp_path / "x.bin.part").write_bytes(b"\0" * 1_000_000)
    state = {"url": f"{server.url}/d/x.bin", "validator": None, "size": 3_000_000}
    (tmp_path / "x.bin.part.json").write_text(json.dumps(state))
    assert get(server, tmp_path / "x.bin", sha256=SHA256).read_bytes() == BYTES
    assert [header for _, header in server.requests] == ["bytes=1000000-", None]


def test_a_server_without_ranges_is_asked_for_the_whole(server, tmp_path):
    server.cuts, server.ranges = [1_000_000, 2_000_000], False
    assert get(server, tmp_path / "x.bin", sha256=SHA256).read_bytes() == BYTES


def test_a_connection_that_always_breaks_at_the_same_place_ends(server, tmp_path):
    server.cuts, server.ranges = [1_000_000] * 20, False
    with pytest.raises(
        UserError, match="cannot be fetched: the connection failed .*, 5 times in a row"
    ):
        get(server, tmp_path / "x.bin")
    assert len(server.requests) == 6  # the first brought bytes, five did not


@pytest.mark.parametrize(
    "expected", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"bytes": 3_000_001}]
)
def test_a_wrong_file_leaves_nothing_but_its_lock(server, tmp_path, expected):
    with pytest.raises(
        UserError, match=r"x\.bin: cannot be fetched: has .*, expected (0|3,000,001)"
    ):
        get(server, tmp_path / "x.bin", **expected)
    assert names(tmp_path) == [".x.bin.lock"]


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    server.answers = [503, 429, 200]
    assert get(server, tmp_path / "x.bin").read_bytes() == BYTES
    with pytest.raises(UserError, match="404 Not Found.*put the file at"):
        get(server, tmp_path / "z.bin", path="/d/z.bin")
    assert [path for path, _ in server.requests] == ["/d/x.bin"] * 3 + ["/d/z.bin"]


def test_nobody_listens_is_one_line(tmp_path):
    with pytest.raises(
        UserError, match=r"the connection failed \(.*Connection refused\), 5 times in a row"
    ) as error:
        fetch(File(url="http://127.0.0.1:9/x"), tmp_path / "x", pause=0.001)
    assert "\n" not in str(error.value)
    assert names(tmp_path) == [".x.lock"]


def test_a_failure_does_not_tell_a_password(tmp_path):
    with pytest.raises(
        UserError, match=r"^http://\*\*\*@127\.0\.0\.1:9/x\?token=\*\*\*: cannot be fetched"
    ) as error:
        fetch(File(url="http://me:s3cret@127.0.0.1:9/x?token=hidden"), tmp_path / "x", pause=0)
    assert "s3cret" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_download_that_does_not_fit_the_disk_is_refused(server, tmp_path):
    with pytest.raises(UserError, match=r"x\.bin needs 1,000,000,000,000\.0 MB; set TANDEM_DATA"):
        get(server, tmp_path / "x.bin", bytes=10**18)
    assert server.requests == []


def test_mirrors_come_first_and_the_url_last(server, tmp_path):
    mirrors = [
        Mirror(from_="https://far.org/", to=f"{server.url}/none/"),
        Mirror(from_="https://elsewhere.org/", to="http://127.0.0.1:9/"),
        Mirror(from_="https://far.org/a/", to=f"{server.url}/d/"),
    ]
    assert list_alternatives("https://far.org/a/x", mirrors)[1:] == [
        f"{server.url}/d/x",
        "https://far.org/a/x",
    ]
    path = fetch(
        File(url="https://far.org/a/x.bin", sha256=SHA256), tmp_path / "x.bin", mirrors, pause=0.01
    )
    assert path.read_bytes() == BYTES
    assert [path for path, _ in server.requests] == ["/none/a/x.bin", "/d/x.bin"]


def test_a_mirror_may_be_a_folder_and_is_used_in_place(tmp_path):
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "x.bin").write_bytes(b"right")
    mirror = Mirror(from_="https://far.org/a", to=(tmp_path / "my data").as_uri())
    path = fetch(File(url="https://far.org/a/x.bin", bytes=5), tmp_path / "x.bin", [mirror])
    assert path == tmp_path / "my data" / "x.bin"


def test_where_urls_are_kept(data_folder):
    assert (
        get_cache_path("https://h.org/a/b%20c.gz?v=1&w=/")
        == data_folder / "h.org" / "a" / "b c.gz?v=1&w=%2F"
    )
    for url in (
        "https://h.org/",
        "https://h.org/a/../../x",
        "https://h.org/a/%2e%2e/x",
        "https:///x",
    ):
        with pytest.raises(UserError, match="names no file"):
            get_cache_path(url)


def test_where_bytes_are_kept_shows_no_secret_but_tells_them_apart(data_folder):
    one, other = (
        get_cache_path(f"https://me:{word}@h.org/a.gz?v=1&api_key={word}")
        for word in ("hunter2", "hunter3")
    )
    assert one.parent == data_folder / "h.org"
    assert one != other
    assert "hunter" not in f"{one}{other}"
    assert get_cache_path("https://me:hunter2@h.org/a.gz") == get_cache_path("https://h.org/a.gz")


def test_a_part_goes_on_with_a_new_signature(server, tmp_path):
    server.files |= {f"/d/x.bin?sig={word}": BYTES for word in ("first", "second")}
    server.cuts, server.answers = [1_000_000], [200, 404]
    with pytest.raises(UserError, match="404 Not Found"):
        get(server, tmp_path / "x.bin", "/d/x.bin?sig=first")
    assert "first" not in (tmp_path / "x.bin.part.json").read_text()
    assert get(server, tmp_path / "x.bin", "/d/x.bin?sig=second").read_bytes() == BYTES
    assert server.requests[-1][1] == "bytes=1000000-"


def test_sizes_are_readable():
    assert [
        format_bytes(size) for size in (0, 999, 1000, 1_057_717_952, 21_768_192_000, 999_960)
    ] == ["0 B", "999 B", "1.0 kB", "1.1 GB", "21.8 GB", "1.0 MB"]


# Two processes, and one that dies

FETCH = (
    "import sys; from pathlib import Path;"
    "from tandem.config.datasets import File; from tandem.data.fetch import fetch;"
    "fetch(File(url=sys.argv[1], sha256=sys.argv[3]), Path(sys.argv[2]))"
)


def start(server, target):
    words = [sys.executable, "-c", FETCH, f"{server.url}/d/x.bin", str(target), SHA256]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def wait_for(condition):
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_killed_download_is_resumed(server, tmp_path):
    server.delay, target, part = 0.05, tmp_path / "x.bin", tmp_path / "x.bin.part"
    process = start(server, target)
    wait_for(lambda: part.exists() and part.stat().st_size > 500_000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    size = part.stat().st_size
    assert not target.exists()
    assert 500_000 < size < 3_000_000
    server.delay = 0.0
    assert get(server, target, sha256=SHA256).read_bytes() == BYTES
    assert server.requests[-1][1] == f"bytes={size}-"
    assert names(tmp_path) == ["x.bin"]


def test_two_processes_fetch_a_file_once(server, tmp_path):
    server.delay, target = 1.0, tmp_path / "x.bin"
    first = start(server, target)
    wait_for((tmp_path / "x.bin.part").exists)
    second = start(server, target)
    assert "another process is at it: waiting" in second.stderr.readline()
    server.delay = 0.0
    errors = [process.communicate(timeout=60)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), errors
    assert target.read_bytes() == BYTES
    assert len(server.requests) == 1
    assert names(tmp_path) == ["x.bin"]


def test_who_waits_takes_over_when_the_other_dies(server, tmp_path):
    server.delay, target = 0.5, tmp_path / "x.bin"
    first = start(server, target)
    wait_for(lambda: server.requests)
    second = start(server, target)
    assert "waiting" in second.stderr.readline()
    first.kill()
    first.communicate()
    server.delay = 0.0
    assert second.wait(60) == 0, second.stderr.read()
    second.stderr.close()
    assert target.read_bytes() == BYTES
    assert server.requests[-1][1].startswith("bytes=")
