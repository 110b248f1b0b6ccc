"""The explorer: a page on this machine where people click from a prompt to a neuron.

Everything shown comes from the verbs and the figures of the package; nothing is computed here. What
a page shows is in its address, so a link, a reload and the browser's back show the same; the server
keeps no user's state, only a bounded shelf of what it has computed lately.
"""
