"""One small file a command; nothing here loads torch before a command needs it."""
