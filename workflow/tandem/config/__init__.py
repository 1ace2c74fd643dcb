"""Typed models of everything a user writes."""
