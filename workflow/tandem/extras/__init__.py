"""What the papers' tables do not need: audits, analyses, operations, the demo. The core imports nothing from here."""
