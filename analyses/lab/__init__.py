"""An FFN by itself: toy layers, activation functions, similarity, superposition, and their figures."""
