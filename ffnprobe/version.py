"""The version; pyproject reads it from here."""

VERSION = "0.1.0.dev0"
