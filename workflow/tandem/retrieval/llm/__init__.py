"""Re-ranking by language models."""
