"""Results as a small static site: pages, tables, provenance and an index with search."""
