"""The engine `torch`. It is registered where it is written, so that nothing is declared here."""
