"""Labels that can fail: what opens each neuron and what it says, found on one half, scored on the other."""
