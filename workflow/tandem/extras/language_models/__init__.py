"""Language models that are asked, here or behind a server, and their answers, which are kept on disk."""
