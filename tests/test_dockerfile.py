"""The image's file, as far as it can be looked at without building; `tests/dockerfile.py` runs its steps."""

from pathlib import Path

import pytest
from dockerfile import IMAGE, Stage, read_steps

ROOT = Path(__file__).parents[1]
STEPS = read_steps((ROOT / "envs/Dockerfile").read_text())


def test_both_stages_have_the_python_that_the_lock_file_is_of():
    images = [words.split()[0] for instruction, words in STEPS if instruction == "FROM"]
    assert [IMAGE.fullmatch(image)[1] for image in images] == ["3.11", "3.11"]


def test_what_is_copied_exists():
    copied = [
        words.split()[0]
        for instruction, words in STEPS
        if instruction == "COPY" and "--from" not in words
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert "envs/requirements.lock" in copied


def test_a_step_goes_on_over_a_backslash_and_comments_are_none():
    text = "# a comment\nFROM a AS b\n\nRUN one && \\\n    two\n"
    assert [(name, words.split()) for name, words in read_steps(text)] == [
        ("FROM", ["a", "AS", "b"]),
        ("RUN", ["one", "&&", "two"]),
    ]


def test_an_instruction_that_would_be_skipped_is_refused():
    with pytest.raises(ValueError, match="HEALTHCHECK: not one of FROM"):
        read_steps("FROM a\nHEALTHCHECK NONE\n")


def test_a_shown_folder_hides_nothing_that_is_copied(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    stage = Stage(tmp_path / "root", ["/opt", "/etc/pip.conf"])
    with pytest.raises(ValueError, match=r"/opt/tandem/a.txt: hidden by --bind /opt"):
        stage.copy(tmp_path / "a.txt", "/opt/tandem/a.txt")
    stage.copy(tmp_path / "a.txt", "/optional/a.txt")
    assert (tmp_path / "root/optional/a.txt").read_text() == "a"
