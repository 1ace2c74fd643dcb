"""An encoder as it is: a dual encoder that no training has touched."""

import torch

from tandem.models.dual import DualEncoder
from tandem.store.artifact import open_artifact
from tandem.training.stage import run_untrained


def test_its_towers_have_the_encoders_weights_and_how_vectors_are_made(make_job, encoder, tmp_path):
    params = {"pooling": "mean", "normalize": True, "temperature": 0.05}
    job = make_job(
        "untrained", tmp_path / "untrained" / "tiny-0123456789", params, {"encoder": encoder}
    )
    run_untrained(job)
    model = DualEncoder.load(open_artifact(job.out).folder / "dual")
    start = DualEncoder.start(encoder.folder / "hf", True, "mean", True, 0.05)
    assert (model.pooling, model.normalize, model.temperature, model.shared) == (
        "mean",
        True,
        0.05,
        True,
    )
    pairs = zip(model.parameters(), start.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
