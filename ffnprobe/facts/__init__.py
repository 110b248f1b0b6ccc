"""Tables of facts: the field's file formats, what the model knows of them, and who carries them."""
