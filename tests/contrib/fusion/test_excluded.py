"""Choosing by a measure: what qrels exclude is left out first, and as much moves up as `score` sees."""

from tandem.contrib.fusion.fuse import run_fusion_tuning
from tandem.store.artifact import open_artifact


def test_fusion_is_tuned_on_the_results_that_count(job_on_excluded):
    job = job_on_excluded("tune_fusion", method="rrf", k=[60.0])
    run_fusion_tuning(job)
    assert open_artifact(job.out).manifest.facts["value"] == 1
