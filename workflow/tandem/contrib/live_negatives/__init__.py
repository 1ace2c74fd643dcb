"""Negatives that a dual encoder finds at every step, or where its queries will be once they have learned."""
