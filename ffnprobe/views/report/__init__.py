"""Results as one page to look at and send: figures, tables and words in a file that needs no network."""
