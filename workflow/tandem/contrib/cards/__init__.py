"""Cards of trained models."""
