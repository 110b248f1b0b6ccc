"""Scripts that ask one question each, and what they share; nothing of it is in the package."""
