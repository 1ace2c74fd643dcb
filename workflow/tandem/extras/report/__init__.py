"""The page of the report: it shows a run, needs no network, and has the sections that packages register."""
