"""Questions about pocket whose answers are known, put as an agent puts them."""
