"""The verbs as commands; nothing here loads torch before a command needs it."""
