"""Parts of evidence_compared and candidates_measured: facts, methods, removals, candidates, the figure."""
