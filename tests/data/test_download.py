"""Downloads from a real server that can cut the connection, change a file, and refuse ranges."""

import hashlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tandem.config.datasets import File
from tandem.config.execution import Mirror
from tandem.data.fetch import alternatives, cache_path, fetch, readable
from tandem.data.files import Files, unpack
from tandem.errors import UserError
from tandem.store.job import Job

BYTES = random.Random(5).randbytes(3_000_000)
SHA256 = hashlib.sha256(BYTES).hexdigest()


class Handler(SimpleHTTPRequestHandler):
    """Serves `server.files` with ranges and validators; notes each request; breaks off where the server says so."""

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Range")))
        if server.answers:
            status = server.answers.pop(0)
            if status != 200:
                return self.send_error(status)
        if self.path not in server.files:
            return self.send_error(404)
        content = server.files[self.path]
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        told = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        current = self.headers.get("If-Range", tag) == tag
        start = int(told[1]) if told and server.ranges and current else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.validators:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        cut = server.cuts.pop(0) if server.cuts else len(rest)
        for at in range(0, min(cut, len(rest)), 100_000):
            try:
                self.wfile.write(rest[at : min(at + 100_000, cut)])
            except ConnectionError:
                break
            time.sleep(server.delay)
        self.close_connection = True

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    """A server of `files` (path → bytes)."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.files, made.asked, made.cuts, made.answers = {"/d/x.bin": BYTES}, [], [], []
    made.ranges, made.validators, made.delay = True, True, 0.0
    made.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The data folder."""
    made = tmp_path / "tandem"
    monkeypatch.setenv("TANDEM_DATA", str(made))
    return made


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def get(server, target, path="/d/x.bin", **expected):
    return fetch(File(url=f"{server.url}{path}", **expected), target, pause=0.01)


def test_a_cut_connection_goes_on_where_it_was(server, tmp_path, capsys):
    server.cuts = [1_000_000, 700_000]
    path = get(server, tmp_path / "x.bin", sha256=SHA256, bytes=3_000_000)
    assert path.read_bytes() == BYTES
    starts = [int(told[6:-1]) for _, told in server.asked[1:]]
    assert server.asked[0][1] is None
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
    server.asked.clear()
    assert get(server, tmp_path / "x.bin").read_bytes() == changed
    assert server.asked[0][1] == "bytes=1000000-"  # it did ask for the rest; If-Range made the server send all


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
        server.asked.clear()
        assert get(server, tmp_path / f"{resumed}.bin", sha256=sha256).read_bytes() == BYTES
        assert (server.asked[1][1] is not None) == resumed


def test_what_was_resumed_wrongly_is_fetched_again(server, tmp_path):
    server.validators = False
    (tmp_path / "x.bin.part").write_bytes(b"\0" * 1_000_000)
    told = {"url": f"{server.url}/d/x.bin", "validator": None, "size": 3_000_000}
    (tmp_path / "x.bin.part.json").write_text(json.dumps(told))
    assert get(server, tmp_path / "x.bin", sha256=SHA256).read_bytes() == BYTES
    assert [told for _, told in server.asked] == ["bytes=1000000-", None]


def test_a_server_without_ranges_is_asked_for_the_whole(server, tmp_path):
    server.cuts, server.ranges = [1_000_000, 2_000_000], False
    assert get(server, tmp_path / "x.bin", sha256=SHA256).read_bytes() == BYTES


def test_a_connection_that_always_breaks_at_the_same_place_ends(server, tmp_path):
    server.cuts, server.ranges = [1_000_000] * 20, False
    with pytest.raises(UserError, match="cannot be fetched: the connection failed .*, 5 times in a row"):
        get(server, tmp_path / "x.bin")
    assert len(server.asked) == 6  # the first brought bytes, five did not


@pytest.mark.parametrize("expected", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"bytes": 3_000_001}])
def test_a_wrong_file_leaves_nothing_but_its_lock(server, tmp_path, expected):
    with pytest.raises(UserError, match=r"x\.bin: cannot be fetched: has .*, expected (0|3,000,001)"):
        get(server, tmp_path / "x.bin", **expected)
    assert names(tmp_path) == [".x.bin.lock"]


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    server.answers = [503, 429, 200]
    assert get(server, tmp_path / "x.bin").read_bytes() == BYTES
    with pytest.raises(UserError, match="404 Not Found.*put the file at"):
        get(server, tmp_path / "z.bin", path="/d/z.bin")
    assert [path for path, _ in server.asked] == ["/d/x.bin"] * 3 + ["/d/z.bin"]


def test_nobody_listens_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"the connection failed \(.*Connection refused\), 5 times in a row") as error:
        fetch(File(url="http://127.0.0.1:9/x"), tmp_path / "x", pause=0.001)
    assert "\n" not in str(error.value)
    assert names(tmp_path) == [".x.lock"]


def test_a_failure_does_not_tell_a_password(tmp_path):
    with pytest.raises(UserError, match=r"^http://\*\*\*@127\.0\.0\.1:9/x\?token=\*\*\*: cannot be fetched") as error:
        fetch(File(url="http://me:s3cret@127.0.0.1:9/x?token=hidden"), tmp_path / "x", pause=0)
    assert "s3cret" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_download_that_does_not_fit_the_disk_is_refused(server, tmp_path):
    with pytest.raises(UserError, match=r"x\.bin needs 1000000\.0 TB; set TANDEM_DATA"):
        get(server, tmp_path / "x.bin", bytes=10**18)
    assert server.asked == []


def test_mirrors_come_first_and_the_url_last(server, tmp_path):
    mirrors = [
        Mirror(from_="https://far.org/", to=f"{server.url}/none/"),
        Mirror(from_="https://elsewhere.org/", to="http://127.0.0.1:9/"),
        Mirror(from_="https://far.org/a/", to=f"{server.url}/d/"),
    ]
    assert alternatives("https://far.org/a/x", mirrors)[1:] == [f"{server.url}/d/x", "https://far.org/a/x"]
    path = fetch(File(url="https://far.org/a/x.bin", sha256=SHA256), tmp_path / "x.bin", mirrors, pause=0.01)
    assert path.read_bytes() == BYTES
    assert [path for path, _ in server.asked] == ["/none/a/x.bin", "/d/x.bin"]


def test_a_mirror_may_be_a_folder_and_is_used_in_place(tmp_path):
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "x.bin").write_bytes(b"right")
    mirror = Mirror(from_="https://far.org/a", to=(tmp_path / "my data").as_uri())
    path = fetch(File(url="https://far.org/a/x.bin", bytes=5), tmp_path / "x.bin", [mirror])
    assert path == tmp_path / "my data" / "x.bin"


def test_where_urls_are_kept(folder):
    assert cache_path("https://h.org/a/b%20c.gz?v=1&w=/") == folder / "h.org" / "a" / "b c.gz?v=1&w=%2F"
    for url in ("https://h.org/", "https://h.org/a/../../x", "https://h.org/a/%2e%2e/x", "https:///x"):
        with pytest.raises(UserError, match="names no file"):
            cache_path(url)


def test_sizes_are_readable():
    assert [readable(size) for size in (0, 999, 1000, 1_057_717_952, 21_768_192_000, 999_960)] == [
        *("0 B", "999 B", "1.0 kB", "1.1 GB", "21.8 GB", "1.0 MB")
    ]


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
    until = time.monotonic() + 30
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
    assert server.asked[-1][1] == f"bytes={size}-"
    assert names(tmp_path) == ["x.bin"]


def test_two_processes_fetch_a_file_once(server, tmp_path):
    server.delay, target = 0.1, tmp_path / "x.bin"
    first = start(server, target)
    wait_for((tmp_path / "x.bin.part").exists)
    second = start(server, target)
    told = [process.communicate(timeout=60)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), told
    assert "another process is at it: waiting" in told[1]
    assert target.read_bytes() == BYTES
    assert len(server.asked) == 1
    assert names(tmp_path) == ["x.bin"]


def test_who_waits_takes_over_when_the_other_dies(server, tmp_path):
    server.delay, target = 0.5, tmp_path / "x.bin"
    first = start(server, target)
    wait_for(lambda: server.asked)
    second = start(server, target)
    assert "waiting" in second.stderr.readline()
    first.kill()
    first.communicate()
    server.delay = 0.0
    assert second.wait(60) == 0, second.stderr.read()
    second.stderr.close()
    assert target.read_bytes() == BYTES
    assert server.asked[-1][1].startswith("bytes=")


# Archives


def tar(path, *entries, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(b"" if isinstance(content, str) else content))
    return path


def test_members_of_a_tar_come_out_in_one_pass(tmp_path, capsys):
    archive = tar(tmp_path / "a.tar.gz", ("./marco/para.txt", b"p"), ("marco/para.title.txt", b"t"), ("x/q.csv", b"q"))
    paths = unpack(archive, ["marco/para.txt", "q.csv"], tmp_path / "out")
    assert paths["marco/para.txt"].read_bytes() == b"p"
    assert paths["q.csv"] == tmp_path / "out" / "q.csv"
    assert names(tmp_path / "out") == [".lock", "para.txt", "q.csv"]
    assert capsys.readouterr().err.count("unpack") == 1
    unpack(archive, ["marco/para.txt", "q.csv"], tmp_path / "out")
    assert "unpack" not in capsys.readouterr().err


def test_another_archive_is_unpacked_again(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", ("f/x", b"old"))
    assert unpack(archive, ["f/"], tmp_path / "out")["f/"].joinpath("x").read_bytes() == b"old"
    tar(archive, ("f/x", b"new"), ("f/deep/y", b"y"))
    os.utime(archive, ns=(1, 1))
    folder = unpack(archive, ["f/"], tmp_path / "out")["f/"]
    assert (folder / "x").read_bytes() == b"new"
    assert (folder / "deep" / "y").read_bytes() == b"y"


def test_a_zip_gives_a_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dataset/train/P1.json", "1")
        archive.writestr("dataset/train/P2.json", "2")
        archive.writestr("other/P3.json", "3")
    unpack(tmp_path / "a.zip", ["dataset/"], tmp_path / "out")
    assert names(tmp_path / "out") == [".lock", "P1.json", "P2.json"]


@pytest.mark.parametrize(
    ("entries", "member", "message"),
    [
        ([("x", b"1")], "../x", "without `..`"),
        ([("x", b"1")], "/x", "without `..`"),
        ([("f/../../x", b"1")], "f/", "leaves its folder"),
        ([("f/x", "/etc/passwd")], "f/x", "is a link"),
        ([("f/x", "/etc/passwd")], "f/", "is a link"),
        ([("/x", b"1")], "x", "leaves its folder"),
        ([("a/x", b"1"), ("b/x", b"2")], "x", "several files end in x: a/x, b/x"),
        ([("a/x", b"1")], "y", "holds no y"),
    ],
)
def test_what_an_archive_may_not_hold_is_refused(tmp_path, entries, member, message):
    with pytest.raises(UserError, match=message):
        unpack(tar(tmp_path / "a.tar", *entries, mode="w"), [member], tmp_path / "out")
    assert names(tmp_path) in (["a.tar"], [".lock", "a.tar"])


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "text"])
def test_a_broken_archive_is_one_line(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x", BYTES[:100_000])
        content = bytearray(path.read_bytes())
        content[50_000] ^= 255
        path.write_bytes(content)
    elif kind == "text":
        path.write_bytes(b"<html>log in first</html>")
    else:
        tar(path, ("y", BYTES[:1000]), ("x", BYTES[1000:100_000]))
        path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(UserError, match="is no whole zip or tar archive .*; delete it and try again"):
        unpack(path, ["x"], tmp_path / "out")
    assert names(tmp_path / "out") == [".lock"]


# A dataset's files


def files(tmp_path, entries, **execution):
    out = tmp_path / "results" / "mine" / "dataset" / "mine-0"
    return Files(Job("dataset", out, {"source": "files"}, {}, {"files": entries, **execution}))


def test_files_are_fetched_when_asked_for_and_kept(server, tmp_path, folder):
    server.files |= {"/d/b.tsv.gz": b"b", "/d/q/dev.tsv": b"d"}
    entries = {
        "a.bin": {"url": f"{server.url}/d/x.bin", "sha256": SHA256, "bytes": 3_000_000},
        "b.tsv.gz": {"url": f"{server.url}/d/b.tsv.gz"},
        "qrels/dev.tsv": {"url": f"{server.url}/d/q/dev.tsv"},
        "qrels/test.tsv": {"url": f"{server.url}/d/q/none.tsv"},
    }
    there = files(tmp_path, entries)
    assert server.asked == []
    assert there.find("b.tsv").read_bytes() == b"b"
    assert there.find_optional("c.tsv") is None
    assert [path.name for path in there.glob("*.bin")] == ["a.bin"]
    assert [path for path, _ in server.asked] == ["/d/b.tsv.gz", "/d/x.bin"]
    kept = folder / f"127.0.0.1%3A{server.server_port}" / "d" / "x.bin"
    assert files(tmp_path, entries).find("a.bin").resolve() == kept
    assert len(server.asked) == 2
    with pytest.raises(UserError, match="404"):
        there.glob("qrels/*.tsv")
    with pytest.raises(UserError, match=r"files of dataset mine: holds no z\.tsv \(plain or \.gz\)"):
        there.find("z.tsv")


def test_members_of_an_archive_are_files(server, tmp_path, folder):
    archive = tar(
        tmp_path / "x.tar.gz", ("d/a/P1.json", b"1"), ("d/a/P2.json", b"2"), ("d/b/P3.json", b"3"), ("q", b"q")
    )
    server.files["/x.tar.gz"] = archive.read_bytes()
    url = f"{server.url}/x.tar.gz"
    entries = {"data/": {"url": url, "member": "d/"}, "questions": {"url": url, "member": "q"}}
    there = files(tmp_path, entries)
    assert there.find("questions").read_bytes() == b"q"
    assert [path.read_bytes() for path in there.glob("data/a/*.json")] == [b"1", b"2"]
    assert there.find("data/b/P3.json").read_bytes() == b"3"
    assert there.find_optional("data/b/P4.json") is None
    assert len(server.asked) == 1
    next(folder.rglob("x.tar.gz")).unlink()  # to save space
    assert files(tmp_path, entries).find("questions").read_bytes() == b"q"
    assert len(server.asked) == 1


def test_a_folder_of_an_archive_may_be_all_there_is(server, tmp_path):
    archive = tar(tmp_path / "x.tar.gz", ("m/para.txt", b"p"), ("m/train.query.txt", b"t"), ("m/dev/q", b"q"))
    server.files["/x.tar.gz"] = archive.read_bytes()
    there = files(tmp_path, {"./": {"url": f"{server.url}/x.tar.gz", "member": "m/"}})
    assert there.find("para.txt").read_bytes() == b"p"
    assert there.find("dev/q").read_bytes() == b"q"
    assert [path.name for path in there.glob("*.query.txt*")] == ["train.query.txt"]
    assert there.find_optional("x.tar.gz") is None
    assert len(server.asked) == 1


def test_urls_that_end_alike_are_told_apart(server, tmp_path):
    server.files |= {"/c/0.parquet": b"c", "/q/0.parquet": b"q"}
    entries = {name: {"url": f"{server.url}/{name[0]}/0.parquet"} for name in ("c.parquet", "q.parquet")}
    there = files(tmp_path, entries)
    assert [there.find(name).read_bytes() for name in entries] == [b"c", b"q"]
    assert there.find("q.parquet").name == "q.parquet"


@pytest.mark.parametrize("place", ["mine/a.bin", "mine/x.bin", "far.org/d/x.bin"])
def test_the_offline_folder_stands_in_for_any_url(tmp_path, folder, place):
    entries = {"a.bin": {"url": "https://far.org/d/x.bin", "sha256": SHA256}}
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(BYTES)
    assert files(tmp_path, entries).find("a.bin").resolve() == folder / place
    (folder / place).write_bytes(BYTES[1:])
    with pytest.raises(UserError, match=f"{place}: has sha256 .*; delete it to have it fetched"):
        files(tmp_path, entries).find("a.bin")


def test_a_file_of_ones_own_stands_in_for_a_member(tmp_path, folder):
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "question.csv").write_bytes(b"own")
    entries = {"question.csv": {"url": "https://far.org/q.zip", "member": "question.csv", "sha256": SHA256}}
    assert files(tmp_path, entries).find("question.csv").read_bytes() == b"own"


def test_an_archive_of_a_mirror_folder_is_unpacked_in_the_data_folder(tmp_path, folder):
    (tmp_path / "mirror").mkdir()
    tar(tmp_path / "mirror" / "x.tar.gz", ("q", b"q"))
    mirrors = [{"from": "https://far.org", "to": (tmp_path / "mirror").as_uri()}]
    entries = {"q": {"url": "https://far.org/x.tar.gz", "member": "q"}}
    found = files(tmp_path, entries, mirrors=mirrors, name="other").find("q")
    assert found == folder / "far.org" / "x.tar.gz.files" / "q"
    assert names(tmp_path / "mirror") == ["x.tar.gz"]


def test_path_is_the_only_place_where_it_is_told(tmp_path):
    (tmp_path / "here").mkdir()
    there = files(tmp_path, {"a": {"url": "https://far.org/a"}}, path=str(tmp_path / "here"))
    assert there.find_optional("a") is None
    with pytest.raises(UserError, match="here: holds no a"):
        there.find("a")


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b"])
def test_a_files_name_stays_in_its_folder(tmp_path, name):
    with pytest.raises(UserError, match="is no file name"):
        files(tmp_path, {name: {"url": "https://far.org/a"}})


def test_a_folder_that_cannot_be_written_is_one_line(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TANDEM_DATA", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\); set TANDEM_DATA"):
        files(tmp_path, {"a.bin": {"url": f"{server.url}/d/x.bin"}}).find("a.bin")
