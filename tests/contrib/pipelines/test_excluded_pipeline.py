"""A pipeline is chosen by what `score` sees: what qrels exclude is left out first, and as much moves up."""

import json

from tandem.contrib.pipelines.choose import run_choice
from tandem.store.artifact import open_artifact


def test_a_pipeline_is_chosen_on_the_results_that_count(job_on_excluded):
    job = job_on_excluded("choose_pipeline", depths=[2])
    run_choice(job)
    assert json.loads(open_artifact(job.out).path("chosen.json").read_text())["value"] == 1
