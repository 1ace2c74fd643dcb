"""Every fault in every file format: refused in one line, counted, or harmless. docs/formats.md shows it as a table."""

import gzip

import pyarrow.parquet as pq
import pytest
from bad_input_formats import FORMATS
from bad_input_outcomes import ABSENT, CASES, LONG, SAME
from format_kit import changed

from tandem.data.collection import Collection
from tandem.errors import UserError


def pack(form, folder):
    """The corpus as gzip without its last 8 bytes."""
    path = folder / form.corpus
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-8])
    path.unlink()


def latin(form, folder):
    """A passage in ISO 8859-1."""
    form.add(folder, "d9", "café au lait")
    changed(form.corpus, lambda data: data.replace("é".encode(), b"\xe9"))(folder)


def edit(change):
    return lambda form, folder: changed(form.corpus, change)(folder)


SPOIL = {
    "truncated gzip": pack,
    "duplicate id": lambda form, folder: form.add(folder, "d1", "again"),
    "empty passage": lambda form, folder: form.add(folder, "d9", ""),
    "not UTF-8": latin,
    "Windows newlines": edit(lambda data: data.replace(b"\n", b"\r\n")),
    "byte-order mark": edit(lambda data: b"\xef\xbb\xbf" + data),
    "id with a space": lambda form, folder: form.add(folder, "d 9", "delta"),
    "id with a slash": lambda form, folder: form.add(folder, "a/d9", "delta"),
    "50 MB line": lambda form, folder: form.add(folder, "d9", "x" * LONG),
    "empty file": edit(lambda data: b""),
    "blank line": edit(lambda data: data.replace(b"\n", b"\n\n", 1)),
}


def place_of_fault(form, folder, clean):
    """What a message may name: see `USUAL`."""
    path = folder / form.corpus
    data = path.read_bytes() if path.is_file() else b""
    before = data.partition(b"\xe9")[0]
    return {
        "corpus": path,
        "place": (form.place or f"{{0}}/{form.corpus}").format(folder),
        "lines": clean.count(b"\n"),
        "last": data.rstrip(b"\n").count(b"\n") + 1,
        "line": before.count(b"\n") + 1,
        "byte": len(before) - before.rfind(b"\n"),
    }


@pytest.mark.parametrize(("name", "fault"), [case for case, outcome in CASES.items() if outcome is not ABSENT])
def test_a_fault(name, fault, make, tmp_path, capsys):
    form, outcome, folder = FORMATS[name], CASES[name, fault], tmp_path / "in"
    form.build(folder)
    clean = (folder / form.corpus).read_bytes()
    before = make("clean", form.params, path=str(folder)).manifest if outcome is SAME else None
    if fault in form.spoil:
        form.spoil[fault](folder)
    else:
        SPOIL[fault](form, folder)
    if outcome.sign == "R":
        with pytest.raises(UserError) as error:
            make("spoilt", form.params, path=str(folder))
        assert str(error.value) == outcome.told.format(folder, **place_of_fault(form, folder, clean))
        assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
        return
    made = make("spoilt", form.params, path=str(folder))
    assert made.manifest.facts["warnings"] == (outcome.told.split("\n") if outcome.sign == "C" else [])
    assert capsys.readouterr().err.count("warning") == len(made.manifest.facts["warnings"])
    if outcome.sign == "=":
        assert made.manifest.facts["checksum"] == before.facts["checksum"]
    if outcome.sign == "K":
        assert outcome.told in held(Collection(made))


def held(collection):
    """Ids, texts and answers of a collection."""
    passages = pq.read_table(collection.artifact.path("corpus.parquet"))
    found = {*passages["doc_id"].to_pylist(), *passages["text"].to_pylist()}
    if "answers.parquet" in collection.artifact.manifest.files:
        told = pq.read_table(collection.artifact.path("answers.parquet"))
        found.update(answer for answers in told["answers"].to_pylist() for answer in answers)
    return found
