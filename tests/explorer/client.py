"""Ask a running explorer what a browser would ask it, without a browser."""

import http.client
import json
from urllib.parse import urlsplit

CALLBACK = "/_dash-update-component"
PAGE = ("page.children", "navigation.children", "live.data")


class Client:
    """One user: pages by address."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.host, self.port = parts.hostname, parts.port
        self.token = parts.query.removeprefix("access_token=")

    @property
    def cookie(self):
        return {"Cookie": f"ffnprobe-{self.port}={self.token}"} if self.token else {}

    def ask(self, method, path, body=None, **headers):
        """Send one request; return status, headers and body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=self.cookie | headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def call(self, outputs, inputs, state=(), **headers):
        """Call back as Dash does; return its reply."""
        asked = write_call(outputs, inputs, state)
        headers = {"Content-Type": "application/json"} | headers
        return self.ask("POST", CALLBACK, json.dumps(asked), **headers)

    def page(self, path, search=""):
        """Show a page; return its text, as JSON."""
        status, _, body = self.call(PAGE, name_inputs(path, search))
        assert status == 200, body
        return body.decode()


def name_inputs(path, search=""):
    """Name what a page depends on."""
    screen = {"dark": False, "narrow": False}
    return {"location.pathname": path, "location.search": search, "screen.data": screen}


def write_call(outputs, inputs, state=()):
    """Write what Dash sends to call back."""
    props = [output.split(".") for output in outputs]
    return {
        "output": f"..{'...'.join(outputs)}.." if len(outputs) > 1 else outputs[0],
        "outputs": [{"id": name, "property": prop.partition("@")[0]} for name, prop in props],
        "inputs": [_prop(name, value) for name, value in inputs.items()],
        "changedPropIds": list(inputs),
        "state": [_prop(name, value) for name, value in dict(state).items()],
    }


def _prop(name, value):
    component, prop = name.split(".")
    return {"id": component, "property": prop, "value": value}
