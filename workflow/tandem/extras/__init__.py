"""What the papers' tables do not need. Nothing in the core imports these packages."""
