"""An FFN by itself: toy layers, activation functions, small encoders, similarity, superposition."""
