"""The last line of an unexpected error's traceback, which names the line of a plugin that raised it."""

import pytest

from tandem.extras.plugin_checks import format_traceback
from tandem.plugins import Plugin

SOURCE = """
def loss(scores):
    return scores["oh"]
"""


@pytest.fixture
def fail_in(tmp_path):
    """`fail_in(name)`: the file of this name below a folder, and the error of a function in it."""

    def fail(name):
        path = tmp_path / name
        functions = {}
        exec(compile(SOURCE, path, "exec"), functions)
        with pytest.raises(KeyError) as error:
            functions["loss"]({})
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


def test_other_files_are_not_named(fail_in):
    path, error = fail_in("others.py")
    plugin = Plugin(path.parent / "my_losses.py", "0123456789abcdef")
    for plugins in ([], [plugin]):
        assert format_traceback(error, plugins).endswith("\nKeyError: 'oh'\n")
