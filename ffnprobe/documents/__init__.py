"""What a result says, as blocks, and how blocks are written: as text, as HTML, as Markdown."""
