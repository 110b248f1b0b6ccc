"""The SST-2 experiment: encoders that differ in their FFN alone, trained, measured and compared."""
