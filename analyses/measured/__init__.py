"""What produced the figures of docs."""
