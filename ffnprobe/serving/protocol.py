"""The Model Context Protocol: tools and resources of a service, as the official SDK serves them.

A question is answered in a thread, so that other clients are heard meanwhile. It is replied to soon after
its budget at the latest, whatever the thread does. Where a client goes away, the work is stopped: on stdio
the server ends; over HTTP a closed connection is noticed while the client's question is being answered.

Pages are read without asking a question:

    ffnprobe://models/NAME/card.md           what the model is, and how to name its neurons
    ffnprobe://models/NAME/survey.parquet    every neuron, one row each
    ffnprobe://docs/PAGE.md                  the docs, agents.md first: how to ask
"""

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resources import Resource
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import Field, TypeAdapter, ValidationError

from ffnprobe.errors import DataRefused, FfnProbeError
from ffnprobe.labels.surveying import survey
from ffnprobe.serving.budgets import Budget
from ffnprobe.serving.service import Service, put_in_words
from ffnprobe.serving.tools import CURSOR, ROWS, TOOLS, write_schema
from ffnprobe.version import VERSION
from ffnprobe.views.saving import encode_result

T = TypeVar("T")
SCHEME = "ffnprobe://"
SKILL = "agents.md"
HOW_TO_ASK = f"{SCHEME}docs/{SKILL}"
MARKDOWN, PARQUET = "text/markdown", "application/vnd.apache.parquet"
# A survey of GPT-2 small takes some minutes on one core.
SURVEY_SECONDS = 900.0
# How long after its budget a reply is sent if the work has not stopped by itself.
GRACE = 2.0
# How often it is looked whether a client is still there.
LOOK = 0.5
THREADS = 16
INSTRUCTIONS = f"""ffnprobe reads the MLP layers of a language model neuron by neuron.
Neurons are named L3N12 (layer 3, neuron 12, from 0). Answers begin with their space: " basketball".
Start with `run` (what is predicted), then `explain` (why, graded). `read` and `search` see weights alone.
Every answer says what its evidence is worth (grade) and where it is from (provenance). A grade is not a
location: never conclude that a fact is stored in a neuron. Read {HOW_TO_ASK} before concluding."""
MORE = "Fetch the next rows of an answer, or another of its tables, by a cursor it gave."
Asked = Context[Any, Any] | None
NUMBER: TypeAdapter[types.RequestId | None] = TypeAdapter(types.RequestId | None)


class Page(Resource):
    """Something that can be read; `make` writes it, within a budget."""

    mime_type: str = MARKDOWN
    make: Callable[[Budget], str | bytes] = Field(exclude=True)

    async def read(self) -> str | bytes:
        return self.make(Budget(SURVEY_SECONDS))


def list_pages(service: Service) -> Iterator[Page]:
    """List what can be read, how to ask first."""
    for name, text in sorted(read_docs().items(), key=lambda each: (each[0] != SKILL, each)):
        title, at = text.partition("\n")[0].lstrip("# "), f"{SCHEME}docs/{name}"
        yield Page(uri=at, name=name, description=title, make=partial(_give, text))
    for model in service.models.sources:
        at = f"{SCHEME}models/{quote(model, safe='')}"
        yield Page(
            uri=f"{at}/card.md", name=f"{model}: card", description="what the model is",
            make=partial(_read_card, service, model),
        )  # fmt: skip
        yield Page(
            uri=f"{at}/survey.parquet", name=f"{model}: survey", mime_type=PARQUET,
            description="every neuron, one row each", make=partial(_read_survey, service, model),
        )  # fmt: skip


def _give(text: str, _: Budget) -> str:
    return text


def _read_card(service: Service, name: str, budget: Budget) -> str:
    with service.wait(budget):
        return service.models.get(name).card()


def _read_survey(service: Service, name: str, budget: Budget) -> bytes:
    """Survey a model, once; with a scan of it that is served, also firing rates, roles and labels."""

    def make() -> bytes:
        scan, top = service.find_scan(model), min(5, model.config.vocab)
        return encode_result(survey(model, top=top, scan=scan, progress=budget.count), ".parquet")

    with service.wait(budget):
        model = service.models.get(name)
        return service.surveys.get_or_make(model.identity, make, size=len)


@cache
def read_docs() -> dict[str, str]:
    """Read the pages of the docs: they lie in the wheel, and in a checkout beside the package."""
    inside = files("ffnprobe").joinpath("docs")
    folder = inside if inside.is_dir() else Path(str(files("ffnprobe"))).parent / "docs"
    pages = (page for page in folder.iterdir() if page.name.endswith(".md"))
    return {page.name: page.read_text(encoding="utf-8") for page in pages}


@asynccontextmanager
async def keep_output(_: "MCPServer[None]") -> AsyncIterator[None]:
    """Write what Python holds back of standard output before the SDK gives the wire back to it."""
    try:
        yield
    finally:
        sys.stdout.flush()


async def notice_leaving(context: Asked, budget: Budget) -> None:
    """Tell the work that nobody waits for it when an HTTP client has gone; stdio has no request."""
    request = None if context is None else context.request_context.request
    while request is not None:
        if await request.is_disconnected():
            budget.is_unwanted = True
            return
        await anyio.sleep(LOOK)


def refuse(error: ValidationError) -> types.JSONRPCError | None:
    """Write the reply to a line that is not a message, by its number if it has one; none to an empty line."""
    errors = error.errors(include_url=False)
    inputs, code, number = [each["input"] for each in errors], types.INVALID_REQUEST, None
    if errors[0]["type"] == "json_invalid":
        if not inputs[0].strip():
            return None
        code = types.PARSE_ERROR
        with suppress(ValueError, RecursionError):  # Python reads half a character
            inputs = [json.loads(inputs[0])]
    numbered = [each["id"] for each in inputs if isinstance(each, dict) and "id" in each]
    with suppress(ValidationError):
        number = NUMBER.validate_json(json.dumps(numbered[0] if numbered else None))
    message = f"this is not a message of MCP: {errors[0]['msg'][:200]}"
    reply = types.ErrorData(code=code, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=reply)


class AgentServer(MCPServer[None]):
    """The MCP server of a service: its tools, with budgets, and its pages."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pages = {page.uri: page for page in list_pages(service)}
        self._limiter: anyio.CapacityLimiter | None = None
        super().__init__(
            "ffnprobe", version=VERSION, instructions=INSTRUCTIONS, log_level="WARNING",
            lifespan=keep_output, subscriptions=False, resources=[*self._pages.values()],
        )  # fmt: skip

    async def list_tools(self) -> list[types.Tool]:
        every = [(name, tool.words, tool.parameters) for name, tool in TOOLS.items()]
        return [
            types.Tool(
                name=name, description=words, input_schema=write_schema(parameters),
                annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for name, words, parameters in [*every, ("more", MORE, (CURSOR, ROWS))]
        ]  # fmt: skip

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Asked = None
    ) -> types.CallToolResult:
        """Answer a question, or say in words why not."""
        try:
            if name == "more":
                answer = self._service.more(arguments)
            else:
                call = self._service.read(name, arguments)
                answer = await self._ask(context, call.budget, partial(self._service.answer, call))
        except Exception as error:
            refusal = types.TextContent(type="text", text=put_in_words(error))
            return types.CallToolResult(content=[refusal], is_error=True)
        told = types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
        return types.CallToolResult(content=[told], structured_content=answer)

    async def read_resource(self, uri: Any, context: Asked = None) -> list[ReadResourceContents]:
        page, budget = self._pages.get(str(uri)), Budget(SURVEY_SECONDS)
        try:
            if page is None:
                raise DataRefused(f'there is nothing at "{str(uri)[:100]}".', remedy=HOW_TO_ASK)
            content = await self._ask(context, budget, partial(page.make, budget))
        except FfnProbeError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except Exception as error:
            raise MCPError(types.INTERNAL_ERROR, put_in_words(error)) from None
        return [ReadResourceContents(content, page.mime_type)]

    async def run_stdio_async(self) -> None:
        """Serve one client over stdio; answer what is not a message with an error, which the SDK would drop."""
        server = self._lowlevel_server
        async with stdio_server() as (heard, sent), anyio.create_task_group() as tasks:
            passed, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)

            async def pass_on() -> None:
                async with passed:
                    async for item in heard:
                        if not isinstance(item, ValidationError):
                            await passed.send(item)
                        elif (refusal := refuse(item)) is not None:
                            await sent.send(SessionMessage(refusal))

            tasks.start_soon(pass_on)
            await server.run(messages, sent, server.create_initialization_options())

    async def _ask(self, context: Asked, budget: Budget, work: Callable[[], T]) -> T:
        """Do work in a thread; stop it when its time is over or the client has gone."""
        if self._limiter is None:  # it belongs to the event loop, which runs only now
            self._limiter = anyio.CapacityLimiter(THREADS)
        outcome: list[T | Exception] = []
        try:
            with anyio.move_on_after(budget.seconds + GRACE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(notice_leaving, context, budget)
                    try:
                        done = await run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
                        outcome.append(done)
                    except Exception as error:  # a group would wrap it in another
                        outcome.append(error)
                    tasks.cancel_scope.cancel()
        finally:
            budget.is_unwanted = True
        answer = outcome[0] if outcome else budget.exceeded(", and the work has not stopped yet")
        if isinstance(answer, Exception):
            raise answer
        return answer
