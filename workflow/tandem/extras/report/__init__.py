"""The page of the report: it shows a run, needs no network, and has the sections that packages register."""

from pathlib import Path

from tandem.report.page import FOLDERS

FOLDERS.append(Path(__file__).parent / "assets")
