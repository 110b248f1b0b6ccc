"""One answer, all the evidence: what the weights say, who pushed, and what removing them does."""
