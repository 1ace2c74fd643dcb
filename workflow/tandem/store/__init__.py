"""Artifacts on disk: atomic files, manifests, jobs that write them, and the lineage between them."""
