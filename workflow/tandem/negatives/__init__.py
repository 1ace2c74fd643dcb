"""Draw training lists from runs: pools of negatives, denoising by a cross-encoder, a report of what was dropped."""
