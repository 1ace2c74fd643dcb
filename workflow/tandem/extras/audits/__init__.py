"""Audits of collections."""
