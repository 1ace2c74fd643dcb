"""Runs that others released, and runs that stages of plugins write."""
