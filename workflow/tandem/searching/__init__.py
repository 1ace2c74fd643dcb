"""Use of what was built: search from the command line, and export for plain FAISS and transformers."""
