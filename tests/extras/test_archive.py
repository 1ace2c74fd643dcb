"""Artifacts as single files, packed in one folder and unpacked in another."""

import resource
import shutil
import tarfile
from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.extras.archive import archive_of, pack, unpack
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

FOLDER = Path("results/tiny/score/bm25-0123456789")


@pytest.fixture
def project(make_job, tmp_path, monkeypatch):
    """A working folder with an artifact, and what a killed stage may have left beside its files."""
    monkeypatch.chdir(tmp_path)
    job = make_job("score", FOLDER, {"measures": ["RR@10"], "split": "test"})
    with writing(job) as draft:
        draft.path("a.txt").write_text("hello")
        draft.path("deep/b.txt").write_text("there")
    (FOLDER / "log.txt").write_text("of this machine")
    return tmp_path


@pytest.fixture
def archive(project, tmp_path_factory):
    """Its archive, in a folder elsewhere."""
    path = tmp_path_factory.mktemp("bucket") / f"{FOLDER.name}.tar"
    pack(FOLDER, out=(path,))
    return path


@pytest.fixture
def elsewhere(archive, tmp_path_factory, monkeypatch):
    """Another working folder."""
    folder = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(folder)
    return folder


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_another_machine_has_the_files_of_the_manifest_alone(archive, elsewhere, project):
    unpack(archive, Path("a.csv"))  # what is not an archive is ignored
    assert names(elsewhere) == [
        f"{FOLDER}/{name}" for name in ("a.txt", "deep/b.txt", "stage.json")
    ]
    assert open_artifact(FOLDER).manifest == open_artifact(project / FOLDER).manifest


def test_the_archive_s_path_is_beside_the_folder():
    assert archive_of(FOLDER) == "results/tiny/score/bm25-0123456789.tar"


def test_the_manifest_is_the_last_file_of_an_archive(archive):
    with tarfile.open(archive) as opened:
        assert opened.getnames()[-1] == f"{FOLDER}/stage.json"
        assert {(member.uid, member.uname) for member in opened} == {(0, "")}


def test_what_is_there_is_left_alone(archive, project):
    before = (FOLDER / "a.txt").stat().st_ino
    unpack(archive)
    assert (FOLDER / "a.txt").stat().st_ino == before


def test_a_folder_without_its_manifest_is_filled(archive, project):
    (FOLDER / "stage.json").unlink()
    (FOLDER / "a.txt").write_text("half")
    unpack(archive)
    assert (FOLDER / "a.txt").read_text() == "hello"
    open_artifact(FOLDER)


def test_a_state_goes_into_an_archive_of_its_own(archive, project, tmp_path_factory):
    state = FOLDER / "state/step-00000004"
    state.mkdir(parents=True)
    (state / "state.json").write_text("{}")
    path = tmp_path_factory.mktemp("bucket") / "state.tar"
    pack(FOLDER, out=(archive, path))
    shutil.rmtree(FOLDER / "state")
    unpack(path)
    assert (state / "state.json").read_text() == "{}"
    assert "state" not in open_artifact(FOLDER).manifest.files


def test_an_artifact_that_is_not_finished_is_not_packed(project):
    (FOLDER / "stage.json").unlink()
    with pytest.raises(UserError, match="stage.json is missing"):
        pack(FOLDER, out=(Path("out.tar"),))
    assert not Path("out.tar").exists()


def test_an_archive_is_named_after_what_it_holds(project):
    with pytest.raises(UserError, match=r"^--out is other.tar; allowed: \S+.tar, and NAME.tar"):
        pack(FOLDER, out=(Path(f"{FOLDER.name}.tar"), Path("other.tar")))
    assert not Path(f"{FOLDER.name}.tar").exists()


def test_a_damaged_artifact_is_not_packed(project):
    (FOLDER / "a.txt").write_text("HELLO")
    with pytest.raises(UserError, match="a.txt: changed since it was written"):
        pack(FOLDER, out=(Path("out.tar"),))
    assert not Path("out.tar").exists()


@pytest.mark.parametrize("length", [0, 700, 1500])  # nothing, within a file, within a header
def test_a_part_of_an_archive_is_refused_and_leaves_nothing(length, archive, elsewhere):
    content = archive.read_bytes()
    archive.write_bytes(content[:length])
    with pytest.raises(UserError, match=r"bm25-0123456789.tar: not a whole archive"):
        unpack(archive)
    assert names(elsewhere) == []


@pytest.mark.parametrize("within", [b"hello", b'"kind"'])  # a file, the manifest
def test_a_flipped_bit_is_refused_and_leaves_nothing(within, archive, elsewhere):
    content = bytearray(archive.read_bytes())
    content[content.index(within)] ^= 1
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"tar: not a whole archive \(results/tiny/score/") as error:
        unpack(archive)
    assert str(error.value).endswith("; delete it in the storage, and the next run makes it again")
    assert names(elsewhere) == []


def test_an_archive_that_names_files_elsewhere_is_refused(elsewhere):
    (elsewhere / "x").write_text("x")
    with tarfile.open("bad.tar", "w") as opened:
        opened.add("x", "results/tiny")
        opened.add("x", "../outside")
    with pytest.raises(UserError, match=r"bad.tar: not a whole archive"):
        unpack(Path("bad.tar"))
    assert not (elsewhere.parent / "outside").exists()


def test_nothing_to_unpack_is_said(archive, elsewhere, capsys):
    unpack(archive, Path("a.csv"))
    unpack()
    assert capsys.readouterr().err == ""
    unpack(Path("a.csv"), Path("b.tar.gz"))
    line = "tandem unpack: 0 archives unpacked; ignored, as no name ends in .tar: a.csv, b.tar.gz\n"
    assert capsys.readouterr().err == line


def test_another_archive_is_refused_in_one_line(elsewhere):
    Path("text.tar").write_text("no archive at all")
    with tarfile.open("other.tar", "w") as opened:
        opened.add("text.tar")
    for name in ("text.tar", "other.tar"):
        with pytest.raises(
            UserError, match=f"^{name}: not a whole archive \\([^\\n]+[^:\\n]\\); delete"
        ) as error:
            unpack(Path(name))
        assert "\n" not in str(error.value)


def test_a_path_without_an_archive_is_refused_before_any_is_unpacked(archive, elsewhere):
    Path("folder.tar").mkdir()
    for name, problem in (("gone.tar", "does not exist"), ("folder.tar", "is not a file")):
        with pytest.raises(UserError, match=f"^{name}: {problem}; allowed: "):
            unpack(archive, Path(name))
    assert names(elsewhere) == []


def test_without_room_for_it_there_is_no_archive(project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bucket")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            pack(FOLDER, out=(folder / "bm25-0123456789.tar",))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(folder) == []
