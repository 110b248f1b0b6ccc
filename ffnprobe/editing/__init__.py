"""Write a fact into W_down, and measure what else changed."""
