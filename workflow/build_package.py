"""How wheel and source distribution are built: the workflow travels inside the package, as the folder `_project`.

There the files stand as in the repository: `tandem/_project/Snakefile`, `…/config/`, `…/workflow/rules/`. `tandem.ROOT`
is that folder where there is no checkout. The file COMMIT says which commit it was built of. pyproject.toml names the
classes; an editable installation works with the checkout itself, and has no copy of its files.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist

PROJECT = Path("tandem/_project")
TRAVELLING = (
    "Snakefile",
    "config/README.md",
    "config/**/*.yaml",
    "config/**/*.json",
    "config/**/*.csv",
    "workflow/rules/*.smk",
    "workflow/report/*.rst",
    "envs/*.yaml",
    "envs/requirements.lock",
    "notebooks/*.ipynb",
    "examples/animals/**/*.*",
    "examples/plugin/*.*",
)
LINKS = {"config/profiles": "profiles"}  # a wheel holds no links: the files stand in both places
# Links and pictures of the repository's own files, which a package index's page does not have.
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n*")
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?://)[^)]*\)")
COMMIT = "COMMIT"  # `<hash>`, or `<hash> dirty` where files differed from it


def project_files() -> Iterator[tuple[Path, Path]]:
    """Yield each file that travels and its place in the project's folder."""
    for pattern in TRAVELLING:
        for path in sorted(Path().glob(pattern)):
            yield path, path
            for folder, link in LINKS.items():
                if path.is_relative_to(folder):
                    yield path, link / path.relative_to(folder)


def find_commit() -> str:
    """Return what COMMIT says, in a source distribution, else the checkout's commit; empty without either."""
    if Path(COMMIT).is_file():
        return Path(COMMIT).read_text(encoding="utf-8").strip()
    top, head = _git("rev-parse", "--show-toplevel"), _git("rev-parse", "HEAD")
    # a checkout of something else around this folder
    if not head or not top or not Path(top).samefile("."):
        return ""
    return f"{head} dirty" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def without_local_links(text: str) -> str:
    """Return Markdown without the repository's own pictures, and with links to its files as their words alone.

    >>> without_local_links("![A plot](docs/a.png)\\n\\n[Use](docs/running.md) [it](https://example.org/)")
    'Use [it](https://example.org/)'
    """
    return _LINK.sub(r"\1", _PICTURE.sub("", text))


class BuildWithProject(build_py):
    """Copy the package's modules, and the project's files beside them."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib, PROJECT)
        for source, place in project_files():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(source), str(folder / place))
        (folder / COMMIT).write_text(find_commit() + "\n", encoding="utf-8")

    def get_source_files(self) -> list[str]:
        """Return what a source distribution needs."""
        travelling = {str(source) for source, _ in project_files()}
        return [*super().get_source_files(), "workflow/build_package.py", *sorted(travelling)]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that `run` makes."""
        outputs = super().get_outputs(include_bytecode)
        if self.editable_mode:
            return outputs
        folder = Path(self.build_lib, PROJECT)
        return [
            *outputs,
            *(str(folder / place) for _, place in project_files()),
            str(folder / COMMIT),
        ]


class DescribeWithoutLinks(egg_info):
    """Write the package's metadata, whose description is README without the links that work in the repository alone."""

    def run(self) -> None:
        """Write the metadata."""
        metadata = self.distribution.metadata
        metadata.long_description = without_local_links(metadata.long_description)
        super().run()


class SdistWithCommit(sdist):
    """Write the commit beside the sources; leave the tests out, of which setuptools would take a part."""

    def prune_file_list(self) -> None:
        """Choose the files."""
        super().prune_file_list()
        self.filelist.exclude_pattern(None, prefix="tests")

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Make the folder that is packed."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, COMMIT).write_text(find_commit() + "\n", encoding="utf-8")
