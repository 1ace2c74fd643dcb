"""What a plugin shows of results, beside tables and in the report, is shown anew when the plugin changes."""

import os

import tiny_project
import yaml
from tiny_project import jobs, run_command, snakemake, tiny_config, write_beir

PLUGIN = """
from tandem.config.table_layouts import TABLE_FORMATS
from tandem.extras.report.sections import Addition, adds_to_report
from tandem.plan.context import plans_view
from tandem.plan.plan import ReportPart, View


@plans_view("greeting")
class Greeting(View):
    def report_part(self):
        return ReportPart("hello")


@adds_to_report("greeting")
def add_greeting(value):
    return Addition()


TABLE_FORMATS[".count"] = lambda table, grids, out: f"{len(table.rows)} rows"
"""


def test_another_source_shows_tables_and_the_report_anew(tmp_path, encoder_folder, documents):
    (tmp_path / "mine.py").write_text(PLUGIN)
    write_beir(tmp_path / "beir", documents)
    layout = {
        "title": "Mine",
        "columns": [{"measure": "RR@10"}],
        "rows": [{"system": "BM25", "run": "bm25"}],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(layout))
    config = tiny_config(tmp_path, encoder_folder) | {
        "plugins": [str(tmp_path / "mine.py")],
        "bm25": {"engine": "bm25s"},
        "tables": [str(tmp_path / "mine.yaml")],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    environment = os.environ | tiny_project.variables_of_stages()
    code, output = run_command(snakemake(tmp_path, ["report"]), env=environment)
    assert code == 0, output
    assert (tmp_path / "results/tables/mine.count").read_text() == "1 rows"

    (tmp_path / "mine.py").write_text(PLUGIN.replace("} rows", "} lines"))
    code, output = run_command(snakemake(tmp_path, ["report", "-n"]), env=environment)
    assert jobs(output) == {"report": 1, "table": 1}, output
