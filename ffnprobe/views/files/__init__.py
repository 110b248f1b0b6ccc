"""Results as files: csv, json, parquet, md, pages and pictures; and read back."""
