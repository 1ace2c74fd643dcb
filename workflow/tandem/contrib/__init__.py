"""Packages of Tandem that the papers' tables do not need. Each is loaded as a plugin is, and nothing imports it."""
