"""The explorer: a page on this machine where people click from a prompt to a neuron.

Nothing is computed here, but by verbs. What a page shows is in its address: a link, a reload and the
browser's back button show the same. The server keeps no state of a user, only a bounded cache of results.
"""
