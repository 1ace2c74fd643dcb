"""What goes beyond the papers' tables; nothing of the core imports it."""
