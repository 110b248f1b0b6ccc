"""The verbs as tools for agents: one warm process that answers questions over MCP.

`tools.py` says what a tool takes and does, `service.py` answers, `protocol.py` speaks MCP.
"""
