"""Training lists from runs: pools of negatives, denoising by a cross-encoder, teachers' scores."""
