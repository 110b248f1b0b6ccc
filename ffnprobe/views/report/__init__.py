"""Results as self-contained pages: figures, tables and definitions in one file that needs no network."""
