"""The report's blocks inside a notebook: `show(result)`."""
