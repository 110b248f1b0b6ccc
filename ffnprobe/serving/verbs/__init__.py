"""One short function for each tool; importing a module registers its tools."""
