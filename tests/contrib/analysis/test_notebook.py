"""The notebooks in git are bare and valid; executing one by this interpreter, and what its mistakes look like."""

import sys
from pathlib import Path

import nbformat
import pytest

from tandem.contrib.analysis.notebook import execute, read_notebook, render_notebook
from tandem.errors import UserError

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == [
        "distillation_dynamics",
        "error_analysis",
        "negatives",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_the_format_is_valid(path):
    notebook = read_notebook(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) >= 4
    for cell in cells:
        assert (cell.outputs, cell.execution_count) == ([], None)
        # what is computed is in the library, where it is tested
        assert len(cell.source.splitlines()) < 12
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def notebook_of(*sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """A notebook as written and as executed, where a user's settings and kernels would have spoilt it."""
    home = tmp_path_factory.mktemp("home")
    (home / "kernels/python3").mkdir(parents=True)
    (home / "kernels/python3/kernel.json").write_text(
        '{"argv": ["/bin/false"], "display_name": "broken"}'
    )
    (home / "profile_default/startup").mkdir(parents=True)
    (home / "profile_default/startup/0.py").write_text("artifact = 'spoilt'; raise SystemExit(1)")
    source = notebook_of(
        "artifact = ''", "import sys; print(sys.executable, artifact)", "artifact[::-1]"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(home))
        patch.setenv("IPYTHONDIR", str(home))
        return source, execute(source, {"artifact": "a\"b'c"}, "x.ipynb")


def test_the_kernel_is_this_interpreter_and_the_parameter_is_set(notebooks):
    source, executed = notebooks
    assert executed.cells[1].source == "artifact = 'a\"b\\'c'"
    assert executed.cells[2].outputs[0].text == f"{sys.executable} a\"b'c\n"
    # the notebook itself is as it was
    assert [len(cell.outputs) for cell in source.cells] == [0, 0, 0]


def test_the_page_loads_nothing(notebooks):
    text = render_notebook(notebooks[1], "Title")
    assert "c\\'b\"a" in text
    for loads in ('src="http', 'href="http', "url(http", 'import("http', 'from "http'):
        assert loads not in text


def test_a_failing_cell_is_one_line():
    with pytest.raises(
        UserError, match=r"^x\.ipynb: cell 3 failed: ZeroDivisionError: division by zero$"
    ):
        execute(notebook_of("a = ''", "a / 1 if False else 1 / 0"), {"a": "b"}, "x.ipynb")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("{", "is not a notebook"),
        (nbformat.writes(nbformat.v4.new_notebook()), "no cell has the tag parameters"),
    ],
)
def test_what_is_no_notebook_of_ours_is_refused(text, message, tmp_path):
    path = tmp_path / "x.ipynb"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_notebook(path)
