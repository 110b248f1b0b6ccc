"""Many texts: scan a corpus once for the strongest examples, moments and firing of every neuron."""
