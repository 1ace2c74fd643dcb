"""The last line of an unexpected error's traceback, which names the line of a plugin that raised it."""

import pytest

from tandem.extras.plugin_checks import format_traceback
from tandem.plugins import Plugin

SOURCE = """
def loss(scores):
    return scores["oh"]


def rank(scores):
    raise ValueError("no scores\\nof what?")
"""


@pytest.fixture
def fail_in(tmp_path):
    """`fail_in(name, function)`: the file of this name below a folder, and the error of a function in it."""

    def fail(name, function="loss"):
        path = tmp_path / name
        functions = {}
        exec(compile(SOURCE, path, "exec"), functions)
        with pytest.raises(Exception, match="oh|no scores") as error:
            functions[function]({})
        return path, error.value

    return fail


def test_a_plugin_s_line_stands_behind_the_error(fail_in):
    path, error = fail_in("my_losses.py")
    lines = format_traceback(error, [Plugin(path, "0123456789abcdef")]).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'oh' (my_losses.py:3)"


def test_a_line_of_any_module_of_an_installed_package_is_named(fail_in):
    path, error = fail_in("bees/ideas.py")
    plugin = Plugin(path.parent / "__init__.py", "0123456789abcdef", "bees")
    assert format_traceback(error, [plugin]).endswith("KeyError: 'oh' (bees/ideas.py:3)\n")


def test_of_a_message_of_several_lines_the_first_names_the_plugin_s(fail_in):
    path, error = fail_in("mine.py", "rank")
    lines = format_traceback(error, [Plugin(path, "0123456789abcdef")]).splitlines()
    assert lines[-2:] == ["ValueError: no scores (mine.py:7)", "of what?"]


def test_other_files_are_not_named(fail_in):
    path, error = fail_in("others.py")
    plugin = Plugin(path.parent / "my_losses.py", "0123456789abcdef")
    for plugins in ([], [plugin]):
        assert format_traceback(error, plugins).endswith("\nKeyError: 'oh'\n")
