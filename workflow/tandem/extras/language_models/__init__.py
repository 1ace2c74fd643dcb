"""Language models in this process or behind a server, and their answers, which are stored on disk."""
