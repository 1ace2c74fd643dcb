"""The command `notebook`: execute a notebook on an artifact, and write the executed copy and an HTML page of it.

The kernel is the interpreter that runs the command, whatever kernels and settings the user has.
"""

import copy
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbconvert
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.files import write_text

PARAMETERS = "parameters"  # the tag of the cell whose values are replaced
SECONDS = 1800.0  # time limit of a cell
# Scripts that a page would load from the web: for formulas, diagrams and widgets, none of which our notebooks use.
LOADED = (
    "mathjax_url",
    "require_js_url",
    "jquery_url",
    "mermaid_js_url",
    "mermaid_layout_elk_js_url",
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute_notebook(*, notebook: Path, artifact: Path, out: Path) -> None:
    """Execute a notebook on an artifact.

    Args:
        notebook: a cell that sets `artifact` is inserted after its cell tagged `parameters`.
        artifact: folder of a stage.
        out: the executed copy, .ipynb; the page is written next to it as .html.
    """
    if out.suffix != ".ipynb":
        raise UserError(f"--out: is {out}; it must end in .ipynb, the page goes beside it")
    folder = open_artifact(artifact).folder
    executed = execute(read_notebook(notebook), {"artifact": str(folder)}, str(notebook))
    write_text(out.with_suffix(".html"), render_notebook(executed, out.stem))
    write_text(out, nbformat.writes(executed) + "\n")


def read_notebook(path: Path) -> Any:
    """Read a notebook; refuse a file that is not a notebook, or has no cell tagged `parameters`."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, nbformat.ValidationError) as error:
        raise UserError(f"{path}: is not a notebook ({str(error).splitlines()[0]})") from None
    if not any(map(_is_parameters, notebook.cells)):
        raise UserError(
            f"{path}: no cell has the tag {PARAMETERS}; tag the one that sets `artifact`"
        )
    return notebook


def _is_parameters(cell: Any) -> bool:
    return PARAMETERS in cell.metadata.get("tags", ())


def execute(notebook: Any, parameters: dict[str, str], where: str) -> Any:
    """Return a copy of a notebook with parameters set and every cell executed, in the working directory.

    Raises:
        UserError: a cell fails; the message has the cell's number and the error.
    """
    executed = copy.deepcopy(notebook)
    at = list(map(_is_parameters, executed.cells)).index(True)
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    executed.cells.insert(
        at + 1, nbformat.v4.new_code_cell(source, id="set", metadata={"tags": ["set"]})
    )
    with tempfile.TemporaryDirectory() as folder:
        # Ignore the user's kernels, so that `python3` is this interpreter. Use sockets: other users could reach ports.
        kernels = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
        kernel = AsyncKernelManager(
            kernel_name="python3", kernel_spec_manager=kernels, transport="ipc"
        )
        kernel.connection_file = str(Path(folder) / "kernel.json")
        client = nbclient.NotebookClient(executed, km=kernel, timeout=SECONDS, record_timing=False)
        env = os.environ | {
            "IPYTHONDIR": folder,
            "JUPYTER_PREFER_ENV_PATH": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        try:
            client.execute(env=env, cwd=os.getcwd(), cleanup_kc=True)
        except nbclient.exceptions.CellExecutionError as error:
            outputs = [
                [output.output_type for output in cell.get("outputs", ())]
                for cell in executed.cells
            ]
            failed = next(i for i, types in enumerate(outputs, 1) if "error" in types)
            lines = COLOURS.sub("", str(error)).strip().splitlines()
            raise UserError(f"{where}: cell {failed} failed: {lines[-1]}") from None
    return executed


def render_notebook(notebook: Any, title: str) -> str:
    """Return an executed notebook as an HTML page that loads nothing from the web."""
    exporter = nbconvert.HTMLExporter(embed_images=True, **dict.fromkeys(LOADED, ""))
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(body)
