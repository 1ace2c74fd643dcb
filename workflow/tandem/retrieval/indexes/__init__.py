"""FAISS's indexes over a dual encoder's passages: trained on a sample, filled by parts, merged on disk, searched."""
