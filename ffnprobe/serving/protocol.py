"""The Model Context Protocol: tools and resources of a service, as the official SDK serves them.

A question is answered in a thread, so that other clients are heard meanwhile. It is replied to soon after
its budget at the latest, whatever the thread does. Where a client goes away, the work is stopped: on stdio
the server ends; over HTTP a closed connection is noticed while the client's question is being answered.
"""

import base64
import json
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext

from ffnprobe.errors import FfnProbeError
from ffnprobe.serving.answers import Answer
from ffnprobe.serving.budgets import Budget
from ffnprobe.serving.resources import SCHEME, SKILL, SURVEY_SECONDS, list_pages, read_page
from ffnprobe.serving.service import Service, put_in_words
from ffnprobe.serving.table import MOST_ROWS, ROWS, TOOLS
from ffnprobe.version import VERSION

# How long after its budget a reply is sent if the work has not stopped by itself.
GRACE = 2.0
# How often it is looked whether a client is still there.
LOOK = 0.5
THREADS = 16
INSTRUCTIONS = f"""ffnprobe reads the MLP layers of a language model neuron by neuron.
Neurons are named L3N12 (layer 3, neuron 12, from 0). Answers begin with their space: " basketball".
Start with `run` (what is predicted), then `explain` (why, graded). `read` and `search` see weights alone.
Every answer says what its evidence is worth (grade) and where it is from (provenance). A grade is not a
location: never conclude that a fact is stored in a neuron. Read {SCHEME}docs/{SKILL} before concluding."""
MORE = types.Tool(
    name="more",
    description="Fetch the next rows of an answer, or another of its tables, by a cursor it gave.",
    input_schema={
        "type": "object", "required": ["cursor"], "additionalProperties": False,
        "properties": {
            "cursor": {"type": "string"},
            "rows": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS},
        },
    },
)  # fmt: skip
Context = ServerRequestContext[Any]


async def notice_leaving(request: Any, budget: Budget) -> None:
    """Tell the work that nobody waits for it when an HTTP client has gone; stdio has no request."""
    while request is not None:
        if await request.is_disconnected():
            budget.is_unwanted = True
            return
        await anyio.sleep(LOOK)


def build_server(service: Service) -> Server[Any]:
    """Build the MCP server of a service."""
    limiter: list[anyio.CapacityLimiter] = []

    async def in_thread(work: "partial[Any]") -> Any:
        if not limiter:  # it belongs to the event loop, which runs only now
            limiter.append(anyio.CapacityLimiter(THREADS))
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter[0])

    async def ask(context: Context, budget: Budget, work: "partial[Any]") -> Any:
        outcome: list[Any] = []
        try:
            with anyio.move_on_after(budget.seconds + GRACE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(notice_leaving, context.request, budget)
                    try:
                        outcome.append(await in_thread(work))
                    except Exception as error:  # a group would wrap it in another
                        outcome.append(error)
                    tasks.cancel_scope.cancel()
        finally:
            budget.is_unwanted = True
        found = outcome[0] if outcome else budget.exceeded(", and the work has not stopped yet")
        if isinstance(found, Exception):
            raise found
        return found

    async def list_tools(
        _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name, description=tool.description, input_schema=tool.schema(),
                annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for tool in TOOLS.values()
        ]  # fmt: skip
        return types.ListToolsResult(tools=[*tools, MORE])

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        given = params.arguments or {}
        try:
            if params.name == MORE.name:
                answer: Answer = service.more(given)
            else:
                question = service.read(params.name, given)
                answer = await ask(context, question.budget, partial(service.answer, question))
        except Exception as error:
            said = types.TextContent(type="text", text=put_in_words(error))
            return types.CallToolResult(content=[said], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=answer
        )

    async def list_resources(
        _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        pages = [
            types.Resource(uri=p.address, name=p.name, mime_type=p.type, description=p.words)
            for p in list_pages(service)
        ]
        return types.ListResourcesResult(resources=pages)

    async def read_resource(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        budget = Budget(SURVEY_SECONDS)
        work = partial(read_page, service, str(params.uri), budget)
        try:
            found, kind = await ask(context, budget, work)
        except FfnProbeError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except Exception as error:
            raise MCPError(types.INTERNAL_ERROR, put_in_words(error)) from None
        held: types.TextResourceContents | types.BlobResourceContents
        if isinstance(found, bytes):
            blob = base64.b64encode(found).decode()
            held = types.BlobResourceContents(uri=params.uri, mime_type=kind, blob=blob)
        else:
            held = types.TextResourceContents(uri=params.uri, mime_type=kind, text=found)
        return types.ReadResourceResult(contents=[held])

    return Server(
        "ffnprobe", version=VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool, on_list_resources=list_resources, on_read_resource=read_resource,
    )  # fmt: skip
