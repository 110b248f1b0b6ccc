"""Parts of evidence_compared: the facts, the methods, the removals, the figure."""
