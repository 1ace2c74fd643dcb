"""Curves of checkpoints and their agreement with the full corpus: by hand, in the CSV, on the pages."""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.cli import run
from tandem.contrib.validation.comparison import ValidationRow, add_validations, open_curves
from tandem.errors import UserError
from tandem.extras.report.sections import list_trained_models
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.lineage import walk

# Four checkpoints by the reduced and by the full corpus: pairs 5 to 1, and other winners.
REDUCED, FULL = [0.1, 0.2, 0.3, 0.4], [0.05, 0.15, 0.30, 0.25]


@pytest.fixture
def rows(empty_world):
    """`rows(reduced, full, kind)`: four checkpoints with their validations, and the model that the last one became."""

    def make(reduced=REDUCED, full=FULL, kind="score"):
        world = empty_world
        measure = "average rank" if kind == "average_rank" else "RR@10"

        def checkpoint(number, after):
            log = pa.table({"step": [number], "name": ["loss"], "value": [1.0]})

            def files(draft):
                pq.write_table(log, draft.path("log.parquet"))

            saved = world.make("checkpoint", f"de.{number}", {"until": [number, 4]}, files, **after)
            changes = {"facts": {"steps": 10 * number}, "seconds": 2.0 * number}
            write_json(
                saved.folder / "stage.json", saved.manifest.model_copy(update=changes).model_dump()
            )
            return open_artifact(saved.folder)

        def value(kind, number, name, mean, of):
            statistics, split = json.dumps({"mean": {name: mean}}), {"split": f"dev.{mean}"}
            params = {**split, "measures": [name]} if kind == "score" else split
            return world.make(
                kind, f"de.{number}", params, {"statistics.json": statistics}, model=of
            )

        validations, chain = [], []
        for number, (low, high) in enumerate(zip(reduced, full, strict=True), 1):
            chain.append(checkpoint(number, {"after": chain[-1]} if chain else {}))
            both = (
                value(kind, number, measure, low, chain[-1]),
                value("score", number, "RR@10", high, chain[-1]),
            )
            folders = {"checkpoint": chain[-1], "reduced": both[0], "full": both[1]}
            validations.append(
                ValidationRow(
                    model="de",
                    part="dual",
                    **{role: str(artifact.folder) for role, artifact in folders.items()},
                )
            )
        return validations

    return make


def drawn(page):
    """Of each plot how many points its series have."""
    specs = [json.loads(text) for text in re.findall(r'class="spec">(.*?)</script>', page)]
    return [
        Counter(row["series"] for rows in spec["datasets"].values() for row in rows)
        for spec in specs
    ]


def test_agreement_of_four_checkpoints_by_hand(rows):
    (curve,) = open_curves(rows())
    assert curve.steps == [10, 20, 30, 40]
    assert curve.tau == pytest.approx(4 / 6)
    # deviations (-3, -1, 1, 3)/20 and (-11, -3, 9, 5)/80: 60 / √(20 · 236)
    assert curve.r == pytest.approx(60 / (20 * 236) ** 0.5)
    assert curve.same is False


def test_a_lower_average_rank_is_better(rows):
    # falling ranks with rising RR@10, but for the last pair
    (curve,) = open_curves(rows([9.0, 7.0, 3.0, 5.0], FULL, "average_rank"))
    assert curve.tau == 1.0
    assert curve.same is True
    assert curve.measures == ("average rank", "RR@10")
    # two measures share no axis
    assert drawn(curve.line) == [{"dual, reduced corpus": 4}]


def test_the_table_and_the_page(rows, tmp_path):
    out = tmp_path / "fidelity.csv"
    assert (
        run(
            [
                "fidelity",
                "--rows",
                json.dumps([row.model_dump() for row in rows()]),
                "--out",
                str(out),
            ]
        )
        == 0
    )
    lines = list(csv.DictReader(out.open()))
    assert [(line["step"], line["reduced"], line["full"]) for line in lines] == [
        ("10", "0.100000", "0.050000"),
        ("20", "0.200000", "0.150000"),
        ("30", "0.300000", "0.300000"),
        ("40", "0.400000", "0.250000"),
    ]
    assert {(line["tau"], line["same_choice"], line["full_measure"]) for line in lines} == {
        ("0.666667", "no", "RR@10")
    }
    page = out.with_suffix(".html").read_text()
    assert "τ 0.667" in page
    assert "different checkpoints" in page
    assert page.count('class="chart"') == 2
    # a point per checkpoint; two lines of four
    assert drawn(page) == [{"de, dual": 4}, {"dual, reduced corpus": 4, "dual, full corpus": 4}]


def test_mistakes(rows, tmp_path):
    with pytest.raises(UserError, match=r"^--rows: 0\.part: Field required$"):
        run(["fidelity", "--rows", '[{"model": "de"}]', "--out", str(tmp_path / "x.csv")])
    with pytest.raises(UserError, match="^--rows: Invalid JSON"):
        run(["fidelity", "--rows", "[", "--out", str(tmp_path / "x.csv")])
    with pytest.raises(UserError, match=r"it must end in \.csv"):
        run(["fidelity", "--rows", "[]", "--out", str(tmp_path / "x.html")])
    first, *others = [row.model_dump() for row in rows()]
    reduced_alone = json.dumps([{**first, "full": ""}, *others])
    with pytest.raises(
        UserError, match=r"^--rows: .*de\.1-.* has no validation on the full corpus"
    ):
        run(["fidelity", "--rows", reduced_alone, "--out", str(tmp_path / "x.csv")])
    path = Path(first["full"], "statistics.json")
    path.write_text(json.dumps({"mean": {"RR@10": 0.5, "R@50": 0.7}}))
    with pytest.raises(UserError, match=r"has the measures RR@10, R@50; a validation of a"):
        run(["fidelity", "--rows", json.dumps([first]), "--out", str(tmp_path / "x.csv")])


def test_the_report_shows_a_model_and_not_each_of_its_checkpoints(rows, empty_world):
    validations = rows()
    (curve,), addition = open_curves(validations), add_validations(validations)
    upstream = {f"checkpoint_{at}": artifact for at, artifact in enumerate(curve.checkpoints, 1)}
    log = pa.table({"step": [1, 2], "name": ["loss", "loss"], "value": [1.0, 0.5]})
    model = empty_world.make(
        "model", "de", {}, lambda draft: pq.write_table(log, draft.path("log.parquet")), **upstream
    )
    (shown,) = list_trained_models(walk([model, *curve.reduced]).values(), addition.training)
    assert (shown.stage.key, shown.steps) == (model.key, 2)
    assert shown.additions == addition.training
    assert shown.additions[0].charts == [curve.line, curve.points]
    assert "choose different checkpoints" in shown.additions[0].note
    took = [artifact.manifest.seconds for artifact in (model, *curve.checkpoints)]
    assert shown.seconds == pytest.approx(sum(took))
    # a checkpoint that no model took over is shown itself, those before it are not
    (shown,) = list_trained_models(walk(curve.checkpoints).values())
    assert shown.stage.key == curve.checkpoints[-1].key
