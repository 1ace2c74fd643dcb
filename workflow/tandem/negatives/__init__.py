"""Training lists from runs: pools of negatives, denoising by a cross-encoder, and a report on what was dropped."""
