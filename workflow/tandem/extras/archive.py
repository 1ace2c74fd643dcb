"""Archives: an artifact as one file, `<key>.tar` next to its folder, for storage that knows only whole objects.

An object exists whole or not at all, just as an artifact exists only with its manifest. Files keep their names below
the working folder, `results/<dataset>/<kind>/<key>/…`.
"""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cluster.progress import say
from tandem.errors import UserError
from tandem.store.artifact import ARCHIVE_SUFFIX, MANIFEST, open_artifact
from tandem.store.files import files_in, partial_path, replacing

Files = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")]


def archive_of(folder: Path | str) -> str:
    """Return the path of a folder's archive."""
    return f"{folder}{ARCHIVE_SUFFIX}"


def pack(folder: Path, /, *, out: Files) -> None:
    """Pack a finished artifact of the working folder.

    Args:
        folder: the artifact's folder, relative to the working folder.
        out: archives to write, anywhere: `<key>.tar` for the artifact's files; `<name>.tar` for a folder next to them
            that is not part of the artifact, such as a training's state.
    """
    artifact = open_artifact(folder)
    names = [path.name.removesuffix(ARCHIVE_SUFFIX) for path in out]
    for path, name in zip(out, names, strict=True):
        if name != artifact.key and not (folder / name).is_dir():
            beside = f"NAME{ARCHIVE_SUFFIX} of a folder in {folder}"
            raise UserError(
                f"--out is {path}; allowed: {artifact.key}{ARCHIVE_SUFFIX}, and {beside}"
            )
    for path, name in zip(out, names, strict=True):
        if name == artifact.key:
            _write(path, folder, [*map(artifact.path, artifact.manifest.files), folder / MANIFEST])
        else:
            _write(path, folder / name, list(files_in(folder / name)))


def _write(path: Path, folder: Path, files: list[Path]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, tarfile.open(partial, "w") as archive:
        archive.add(folder, filter=_without_owner, recursive=False)
        for file in files:
            archive.add(file, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(*archives: Path) -> None:
    """Unpack archives into the working folder, except files that exist already.

    Args:
        archives: files that `tandem pack` wrote; others are ignored.
    """
    packed = [archive for archive in archives if archive.name.endswith(ARCHIVE_SUFFIX)]
    for archive in packed:
        if not archive.is_file():
            problem = "is not a file" if archive.exists() else "does not exist"
            raise UserError(f"{archive}: {problem}; allowed: what `tandem pack` wrote")
    for archive in packed:
        _unpack(archive)
    if archives and not packed:
        ignored = ", ".join(map(str, archives))
        say(
            f"tandem unpack: 0 archives unpacked; ignored, as no name ends in {ARCHIVE_SUFFIX}: {ignored}"
        )


def _unpack(path: Path) -> None:
    try:
        with tarfile.open(path) as archive:
            first, *members = archive.getmembers()
            if not members or not first.isdir():
                raise ValueError("it does not begin with an artifact's folder")
            if Path(members[-1].name).is_file():  # the file that is put in place last
                return
            temporary = partial_path(Path(first.name))
            try:
                archive.extractall(temporary, members, filter="data")
                if Path(members[-1].name).name == MANIFEST:
                    _check_contents(temporary, first.name)
                for member in members:
                    Path(member.name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(temporary / member.name, member.name)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except (tarfile.TarError, EOFError, ValueError) as error:
        hint = "delete it in the storage, and the next run makes it again"
        # tarfile has a line for each compression that it tried
        problem = str(error).partition("\n")[0].rstrip(":")
        raise UserError(f"{path}: not a whole archive ({problem}); {hint}") from None


def _check_contents(temporary: Path, folder: str) -> None:
    """Compare the files of an artifact with its manifest; tar has no checksums of its contents."""
    try:
        open_artifact(temporary / folder)
    except UserError as error:
        # The rest of the message is for an artifact in its place: it advises another run, which would unpack the same.
        problem = str(error).partition("; ")[0]
        raise ValueError(problem.replace(f"{temporary}/", "")) from None
