"""The report's section on leakage and noise."""

import csv
import json

import pytest

from tandem.contrib.audits.findings import show_noise
from tandem.extras.report.page import list_numeric, make_environment
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing
from tandem.store.lineage import BuiltStage

NASTY = '</p><script>alert("x")</script>'
SUMMARY = {
    "normalisation": "title and text",
    "search": {"recall_at_threshold": 0.952, "skipped": 1234},
}
LINES = [
    ("empty passages", "corpus", 1, 0.25),
    ("pairs of near-duplicate texts", "corpus", 12345, ""),
    (NASTY, "x", 0, 0),
    ("empty passages", "part", 2, ""),
]


@pytest.fixture
def stage(tmp_path):
    params = {
        "threshold": 0.8, "permutations": 64, "shingle": {"unit": "words", "size": 3}, "seed": 1, "depths": [10],
    }  # fmt: skip
    job = Job("noise", tmp_path / "noise-0123456789", params, {})
    passages = [{"id": "d1", "text": NASTY}]
    examples = {
        "Empty passages": [
            {"note": NASTY, "queries": [{"id": "q1", "text": NASTY}], "passages": passages}
        ]
    }
    with writing(job) as draft:
        draft.path("summary.json").write_text(json.dumps(SUMMARY))
        draft.path("examples.json").write_text(json.dumps(examples))
        with open(draft.path("noise.csv"), "w", newline="") as file:
            csv.writer(file).writerows([("finding", "where", "count", "share"), *LINES])
    return BuiltStage(open_artifact(job.out), {})


def test_places_with_the_same_findings_stand_side_by_side(stage):
    audit = show_noise(stage)
    assert [(grid.head, grid.rows) for grid in audit.grids] == [
        (
            ["finding", "corpus", "part"],
            [
                ["empty passages", "1 · 25.00 %", "2"],
                ["pairs of near-duplicate texts", "12,345", "–"],
            ],
        ),
        (["finding", "x"], [[NASTY, "0 · 0.00 %"]]),
    ]
    assert list_numeric(audit.grids[0]) == [False, True, True]


def test_section(stage):
    page = make_environment().get_template("_audits.html").module.leakage(show_noise(stage))
    assert 'href="#stage-noise-0123456789"' in page
    assert "shingles of 3 words from 0.8" in page
    assert "probability of 95.2 %" in page
    assert "1,234 comparisons" in page
    assert '<td class="num" data-value="12345.0">12,345</td>' in page
    assert '<td class="num" data-value="1.0">1 · 25.00 %</td>' in page
    assert "1 example</span>" in page
    assert "<script" not in page
    assert page.count("&lt;/p&gt;&lt;script&gt;") == 4
