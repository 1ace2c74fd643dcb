"""Validations of a training within it, or of its checkpoints by other jobs on a reduced corpus; the best is chosen."""
