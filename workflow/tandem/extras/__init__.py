"""What the papers' tables do not need; nothing in the core imports it."""
