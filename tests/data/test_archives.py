"""Archives, and the files of a dataset: downloaded, unpacked, from a mirror, from a folder of one's own."""

import io
import os
import tarfile
import zipfile

import pytest
from download_server import BYTES, SHA256, names

from tandem.data.dataset_files import DatasetFiles, unpack_members
from tandem.errors import UserError
from tandem.store.job import Job

pytestmark = pytest.mark.usefixtures("data_folder")


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
    archive = tar(
        tmp_path / "a.tar.gz",
        ("./marco/para.txt", b"p"),
        ("marco/para.title.txt", b"t"),
        ("x/q.csv", b"q"),
    )
    paths = unpack_members(archive, ["marco/para.txt", "q.csv"], tmp_path / "out")
    assert paths["marco/para.txt"].read_bytes() == b"p"
    assert paths["q.csv"] == tmp_path / "out" / "q.csv"
    assert names(tmp_path / "out") == [".lock", "para.txt", "q.csv"]
    assert capsys.readouterr().err.count("unpack") == 1
    unpack_members(archive, ["marco/para.txt", "q.csv"], tmp_path / "out")
    assert "unpack" not in capsys.readouterr().err


def test_another_archive_is_unpacked_again(tmp_path):
    # both have the same modification time, as archives have that are built reproducibly
    archive = tar(tmp_path / "a.tar.gz", ("f/x", b"old"))
    os.utime(archive, ns=(1, 1))
    assert (
        unpack_members(archive, ["f/"], tmp_path / "out")["f/"].joinpath("x").read_bytes() == b"old"
    )
    tar(archive, ("f/x", b"new"), ("f/deep/y", b"y"))
    os.utime(archive, ns=(1, 1))
    folder = unpack_members(archive, ["f/"], tmp_path / "out")["f/"]
    assert (folder / "x").read_bytes() == b"new"
    assert (folder / "deep" / "y").read_bytes() == b"y"


def test_a_zip_gives_a_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dataset/train/P1.json", "1")
        archive.writestr("dataset/train/P2.json", "2")
        archive.writestr("other/P3.json", "3")
    unpack_members(tmp_path / "a.zip", ["dataset/"], tmp_path / "out")
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
        unpack_members(tar(tmp_path / "a.tar", *entries, mode="w"), [member], tmp_path / "out")
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
    with pytest.raises(
        UserError, match="is not a whole zip or tar archive .*; delete it and try again"
    ):
        unpack_members(path, ["x"], tmp_path / "out")
    assert names(tmp_path / "out") == [".lock"]


# A dataset's files


def files(tmp_path, entries, **execution):
    out = tmp_path / "results" / "mine" / "dataset" / "mine-0"
    return DatasetFiles(
        Job("dataset", out, {"source": "files"}, {}, {"files": entries, **execution})
    )


def test_files_are_fetched_when_asked_for_and_kept(server, tmp_path, data_folder):
    server.files |= {"/d/b.tsv.gz": b"b", "/d/q/dev.tsv": b"d"}
    entries = {
        "a.bin": {"url": f"{server.url}/d/x.bin", "sha256": SHA256, "bytes": 3_000_000},
        "b.tsv.gz": {"url": f"{server.url}/d/b.tsv.gz"},
        "qrels/dev.tsv": {"url": f"{server.url}/d/q/dev.tsv"},
        "qrels/test.tsv": {"url": f"{server.url}/d/q/none.tsv"},
    }
    there = files(tmp_path, entries)
    assert server.requests == []
    assert there.find("b.tsv").read_bytes() == b"b"
    assert there.find_optional("c.tsv") is None
    assert [path.name for path in there.glob("*.bin")] == ["a.bin"]
    assert [path for path, _ in server.requests] == ["/d/b.tsv.gz", "/d/x.bin"]
    download = data_folder / f"127.0.0.1%3A{server.server_port}" / "d" / "x.bin"
    assert files(tmp_path, entries).find("a.bin").resolve() == download
    assert len(server.requests) == 2
    with pytest.raises(UserError, match="404"):
        there.glob("qrels/*.tsv")
    with pytest.raises(
        UserError, match=r"files of dataset mine: holds no z\.tsv \(plain or packed\)"
    ):
        there.find("z.tsv")


def test_members_of_an_archive_are_files(server, tmp_path, data_folder):
    archive = tar(
        tmp_path / "x.tar.gz",
        ("d/a/P1.json", b"1"),
        ("d/a/P2.json", b"2"),
        ("d/b/P3.json", b"3"),
        ("q", b"q"),
    )
    server.files["/x.tar.gz"] = archive.read_bytes()
    url = f"{server.url}/x.tar.gz"
    entries = {"data/": {"url": url, "member": "d/"}, "questions": {"url": url, "member": "q"}}
    there = files(tmp_path, entries)
    assert there.find("questions").read_bytes() == b"q"
    assert [path.read_bytes() for path in there.glob("data/a/*.json")] == [b"1", b"2"]
    assert there.find("data/b/P3.json").read_bytes() == b"3"
    assert there.find_optional("data/b/P4.json") is None
    assert len(server.requests) == 1
    next(data_folder.rglob("x.tar.gz")).unlink()  # to save space
    assert files(tmp_path, entries).find("questions").read_bytes() == b"q"
    assert len(server.requests) == 1


def test_a_folder_of_an_archive_may_be_all_there_is(server, tmp_path):
    archive = tar(
        tmp_path / "x.tar.gz", ("m/para.txt", b"p"), ("m/train.query.txt", b"t"), ("m/dev/q", b"q")
    )
    server.files["/x.tar.gz"] = archive.read_bytes()
    there = files(tmp_path, {"./": {"url": f"{server.url}/x.tar.gz", "member": "m/"}})
    assert there.find("para.txt").read_bytes() == b"p"
    assert there.find("dev/q").read_bytes() == b"q"
    assert [path.name for path in there.glob("*.query.txt*")] == ["train.query.txt"]
    assert there.find_optional("x.tar.gz") is None
    assert len(server.requests) == 1


def test_urls_that_end_alike_are_told_apart(server, tmp_path):
    server.files |= {"/c/0.parquet": b"c", "/q/0.parquet": b"q"}
    entries = {
        name: {"url": f"{server.url}/{name[0]}/0.parquet"} for name in ("c.parquet", "q.parquet")
    }
    there = files(tmp_path, entries)
    assert [there.find(name).read_bytes() for name in entries] == [b"c", b"q"]
    assert there.find("q.parquet").name == "q.parquet"


@pytest.mark.parametrize("place", ["mine/a.bin", "mine/x.bin", "far.org/d/x.bin"])
def test_the_offline_folder_stands_in_for_any_url(tmp_path, data_folder, place):
    entries = {"a.bin": {"url": "https://far.org/d/x.bin", "sha256": SHA256}}
    (data_folder / place).parent.mkdir(parents=True)
    (data_folder / place).write_bytes(BYTES)
    assert files(tmp_path, entries).find("a.bin").resolve() == data_folder / place
    (data_folder / place).write_bytes(BYTES[1:])
    with pytest.raises(UserError, match=f"{place}: has sha256 .*; delete it to have it fetched"):
        files(tmp_path, entries).find("a.bin")


def test_a_file_of_ones_own_stands_in_for_a_member(tmp_path, data_folder):
    (data_folder / "mine").mkdir(parents=True)
    (data_folder / "mine" / "question.csv").write_bytes(b"own")
    entries = {
        "question.csv": {"url": "https://far.org/q.zip", "member": "question.csv", "sha256": SHA256}
    }
    assert files(tmp_path, entries).find("question.csv").read_bytes() == b"own"


def test_an_archive_of_a_mirror_folder_is_unpacked_in_the_data_folder(tmp_path, data_folder):
    (tmp_path / "mirror").mkdir()
    tar(tmp_path / "mirror" / "x.tar.gz", ("q", b"q"))
    mirrors = [{"from": "https://far.org", "to": (tmp_path / "mirror").as_uri()}]
    entries = {"q": {"url": "https://far.org/x.tar.gz", "member": "q"}}
    path = files(tmp_path, entries, mirrors=mirrors, name="other").find("q")
    assert path == data_folder / "far.org" / "x.tar.gz.files" / "q"
    assert names(tmp_path / "mirror") == ["x.tar.gz"]


def test_path_is_the_only_place_where_it_is_told(tmp_path):
    (tmp_path / "here").mkdir()
    there = files(tmp_path, {"a": {"url": "https://far.org/a"}}, path=str(tmp_path / "here"))
    assert there.find_optional("a") is None
    with pytest.raises(UserError, match="here: holds no a"):
        there.find("a")


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b"])
def test_a_files_name_stays_in_its_folder(tmp_path, name):
    with pytest.raises(UserError, match="is not a file name"):
        files(tmp_path, {name: {"url": "https://far.org/a"}})


def test_a_folder_that_cannot_be_written_is_one_line(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TANDEM_DATA", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\); set TANDEM_DATA"):
        files(tmp_path, {"a.bin": {"url": f"{server.url}/d/x.bin"}}).find("a.bin")
