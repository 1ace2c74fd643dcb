"""Learn from teachers: from their stored scores of training lists, or from a teacher that scores each batch."""
