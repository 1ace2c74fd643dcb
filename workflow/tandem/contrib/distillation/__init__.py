"""Learning from teachers: their stored scores of training lists, or a teacher in batch."""
