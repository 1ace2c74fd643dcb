"""The papers' tables of datasets: their printed numbers next to the numbers that artifacts count."""
