"""`snakemake notebooks` on a tiny collection: all three are executed on what the run made, and Table 10 is filled."""

import csv
import os
import shutil

import nbformat
import pytest
import yaml
from tiny_project import jobs


@pytest.fixture(scope="module")
def project(tiny_dag, tmp_path_factory, snakemake_in):
    """`project(*words)`: Snakemake's exit status and output in a copy of the finished project."""
    folder = tmp_path_factory.mktemp("notebooks") / "project"
    shutil.copytree(tiny_dag.folder, folder, ignore=shutil.ignore_patterns(".snakemake"))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["analysis"] = {
        "errors": {"system": "bm25", "top": 1},
        "negatives": {"of": ["rocketqav2"], "judges": ["rocketqav2.reranker"]},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return snakemake_in(folder)


def test_all_three_are_executed_without_an_error_and_a_filled_sheet_makes_table_10(project):
    code, output = project("notebooks", "dureader_retrieval_table10")
    assert code == 0, output
    assert "KeyError" not in output
    assert "rule train" not in output
    shown = {"error_analysis": 1, "distillation_dynamics": 3, "negatives": 2}
    for name, plots in shown.items():
        path = project.folder / f"results/notebooks/{name}-tiny.ipynb"
        notebook = nbformat.read(path, as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        outputs = [output for cell in cells for output in cell.outputs]
        assert not [output for output in outputs if output.output_type == "error"]
        assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) == plots
        assert path.with_suffix(".html").read_text().count('src="data:image/svg+xml') == plots
    sheets = list(project.folder.glob("results/tiny/errors/*/sheet.csv"))
    assert len(sheets) == 1
    table = project.folder / "results/tables/dureader_retrieval/table10.csv"
    assert "guessed" in table.with_suffix(".md").read_text()
    filled = project.folder / "filled.csv"
    header, *lines = sheets[0].read_text(encoding="utf-8-sig").splitlines()
    filled.write_text("\n".join([header, *(f"{line[:-1]}overlap," for line in lines)]) + "\n")
    code, output = project(
        "dureader_retrieval_table10", "--config", f"analysis={{errors: {{sheet: {filled}}}}}"
    )
    assert code == 0, output
    with open(table, encoding="utf-8", newline="") as file:
        counts = {row["type"]: row["pairs"] for row in csv.DictReader(file) if row["type"]}
    assert {name for name, pairs in counts.items() if pairs != "0"} == {
        "Over-sensitivity on term overlap"
    }
    assert "annotated." in table.with_suffix(".md").read_text()
    # another sheet counts, though it is older than the table, and so does none
    other = shutil.copy(filled, project.folder / "other.csv")
    os.utime(other, (0, 0))
    for words in (["--config", f"analysis={{errors: {{sheet: {other}}}}}"], []):
        code, output = project("-n", "dureader_retrieval_table10", *words)
        assert jobs(output) == {"error_table": 1, "dureader_retrieval_table10": 1}


def test_a_mistake_is_one_line_before_anything_runs(project):
    code, output = project("notebooks", "-n", "--config", "analysis={dynamics: {model: ce_deneg}}")
    assert code == 1
    assert "analysis.dynamics.model: ce_deneg is a cross model, needed is joint" in output
    assert "Traceback" not in output
