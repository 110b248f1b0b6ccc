"""An FFN by itself: toy layers, activation functions, similarity, superposition, and their figures.

Scripts import it as `lab`, notebook 05 as `analyses.lab`. So its files import one another relatively.
"""
