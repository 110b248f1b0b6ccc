"""The verbs as tools for agents: one warm process that answers questions over MCP.

A tool is a verb of the package with its own options, a time budget and a compact answer: a few rows, the
rest by a cursor, always with the provenance and with what the evidence is worth. `tools.py` says what a
tool takes and does, `service.py` answers, `protocol.py` speaks MCP.
"""
