"""The papers' tables of datasets: what they print beside what artifacts count."""
