"""Stages run in a process of their own."""

from lexical_stages import *  # noqa: F403
