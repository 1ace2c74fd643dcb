"""What the papers' tables do not need, and what packages of `contrib/` share. The core imports nothing from here."""
