"""`snakemake notebooks` on a tiny collection: all three are executed on what the run made, and Table 10 is filled."""

import csv
import json
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[1]
TRAIN = {"steps": 4, "queries_per_batch": 4, "list_size": 4, "lr": 1e-3, "precision": "fp32"}


@pytest.fixture(scope="module")
def project(tmp_path_factory, documents, encoder_folder, snakemake_in):
    """`project(*words)`: Snakemake's exit status and output; few models, BM25's lists for both."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "beir/qrels").mkdir(parents=True)
    rows = [{"_id": doc, "title": title, "text": text} for doc, title, text in documents]
    subjects, asked = [doc.removesuffix("-1") for doc, _, _ in documents if doc.endswith("-1")], []
    for split, part, text in (("train", 3, "what does the {} eat"), ("test", 2, "how does the {} behave")):
        asked += [{"_id": f"{split}-{one}", "text": text.format(one)} for one in subjects]
        judged = "".join(f"{split}-{one}\t{one}-{part}\t1\n" for one in subjects)
        (folder / f"beir/qrels/{split}.tsv").write_text(judged)
    for name, told in (("corpus", rows), ("queries", asked)):
        (folder / f"beir/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    joint = {"init": {"retriever": "de_bm25neg", "reranker": "encoder"}, "train": TRAIN}
    joint["candidates"] = {"from": "bm25", "depth": 20, "denoise": None}
    config = {
        "dataset": "tiny",
        "datasets": {"tiny": {"source": "beir", "path": str(folder / "beir")}},
        "encoder": str(encoder_folder),
        "depth": {"train": 50, "dev": 20, "test": 20},
        "rerank": {"depth": 5, "precision": "fp32"},
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 16, "precision": "fp32"},
        "tables": [],
        "models": {"de_bm25neg": {"train": TRAIN}, "rocketqav2": joint},
        "analysis": {
            "errors": {"system": "bm25", "top": 1},
            "negatives": {"of": ["rocketqav2"], "judges": ["rocketqav2.reranker"]},
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    return snakemake_in(folder)


def test_all_three_are_executed_without_an_error_and_a_filled_sheet_makes_table_10(project):
    code, output = project("notebooks", "dureader_retrieval_table10")
    assert code == 0, output
    assert "KeyError" not in output
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
    code, output = project("dureader_retrieval_table10", "--config", f"analysis={{errors: {{sheet: {filled}}}}}")
    assert code == 0, output
    with open(table, encoding="utf-8", newline="") as file:
        found = {row["type"]: row["pairs"] for row in csv.DictReader(file) if row["type"]}
    assert {name for name, pairs in found.items() if pairs != "0"} == {"Over-sensitivity on term overlap"}
    assert "annotated." in table.with_suffix(".md").read_text()


def test_a_mistake_is_one_line_before_anything_runs(project):
    code, output = project("notebooks", "-n", "--config", "analysis={dynamics: {model: ce_deneg}}")
    assert code == 1
    assert "analysis.dynamics.model: ce_deneg is a cross model, needed is joint" in output
    assert "Traceback" not in output
