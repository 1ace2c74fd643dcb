"""Trainings with a budget of minutes, and sizes of their lists and batches that follow from the data."""
