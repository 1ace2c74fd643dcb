"""The engine `torch`, which is registered where it is written; nothing else is declared."""
