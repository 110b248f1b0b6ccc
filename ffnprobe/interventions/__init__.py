"""What changes if: neurons removed, set or patched, and the model run again exactly."""
