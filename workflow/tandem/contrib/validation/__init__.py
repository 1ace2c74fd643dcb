"""Validations of checkpoints: by other jobs on a reduced corpus, and whether these order them as the full one does."""
