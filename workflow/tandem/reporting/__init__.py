"""Tables as the papers print them, and one page that shows a run: its numbers, where they come from, its queries."""
