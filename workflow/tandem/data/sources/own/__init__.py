"""Readers of a user's own files: one module a file format, found by the end of a file's name.

Every reader gives (place, record): a record maps the fields of its role (`roles.py`) to what the file holds, unchecked.
"""
