"""Parts of evidence_compared and verdicts_measured: facts, methods, removals, the figure."""
