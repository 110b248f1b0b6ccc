"""What each room costs, as ratios measured in one run."""
