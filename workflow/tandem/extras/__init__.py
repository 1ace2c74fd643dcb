"""What the papers' tables do not need: audits, analyses, estimates and the like. The core never imports it."""
