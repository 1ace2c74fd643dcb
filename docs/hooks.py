"""Pages of the site that stand outside docs/: the contributing guide, the changelog and the measured benchmarks."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages under their paths in the repository; the benchmarks are found through links, not the navigation."""
    root = Path(config.config_file_path).parent
    for path in (
        root / "CONTRIBUTING.md",
        root / "CHANGELOG.md",
        *sorted(root.glob("benchmarks/results/*.md")),
    ):
        name = path.relative_to(root).as_posix()
        level = InclusionLevel.NOT_IN_NAV if "/" in name else InclusionLevel.INCLUDED
        files.append(File.generated(config, name, abs_src_path=str(path), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between docs/ and the rest of the repository into links of the site, where both are side by side."""
    if page.file.generated_by:
        return markdown.replace("](docs/", "](" + "../" * page.file.src_uri.count("/"))
    up = "../" * page.file.src_uri.count("/")
    return re.sub(
        rf"\]\({re.escape(up)}\.\./(benchmarks/|CONTRIBUTING|CHANGELOG)", rf"]({up}\1", markdown
    )
