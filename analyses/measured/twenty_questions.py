"""Does an agent get the right answers through the tools?

Method: twenty questions about pocket are put through the protocol, by the SDK's own client. Their answers
are known: from the table of facts that pocket was taught, and from identities that must hold.

Found on pocket: twenty of twenty are answered right.

    python analyses/measured/twenty_questions.py
"""

from typing import Any

import anyio
import pandas as pd
from mcp import Client

from analyses.measured.asking.questions import list_questions
from analyses.script import new_parser, run_script
from ffnprobe.serving.protocol import AgentServer
from ffnprobe.serving.service import GB, ServedModels, Service
from ffnprobe.views.terminal import print_tables


async def ask_all() -> pd.DataFrame:
    """Ask every question and compare what is answered with what is known."""
    service = Service(ServedModels(["pocket"], most_bytes=8 * GB))
    config = service.models.get(None).config
    rows = []
    async with Client(AgentServer(service)) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            reply = await client.call_tool(tool, arguments)
            return dict(reply.structured_content or {"notes": [str(reply.content)]})

        for question in list_questions(config.neurons, config.layers):
            reply = await call(question.tool, question.arguments)
            if question.table is not None:
                cursor = reply["more_tables"][question.table]["cursor"]
                reply = await call("more", {"cursor": cursor, "rows": 200})
            found = question.read(reply)
            row = (
                question.words,
                question.tool,
                str(question.known),
                str(found),
                found == question.known,
            )
            rows.append(row)
    return pd.DataFrame(rows, columns=["question", "tool", "known", "answered", "is_right"])


def main(argv: list[str] | None = None) -> None:
    new_parser(__doc__).parse_args(argv)
    asked = anyio.run(ask_all)
    right = int(asked.is_right.sum())
    print_tables({f"{right} of {len(asked)} questions are answered right": asked})
    if right < len(asked):
        raise SystemExit(1)


if __name__ == "__main__":
    run_script(main)
