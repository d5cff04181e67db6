"""The three articles' hand-written loops, as their readers would write them in Python against the OpenAI client.

Each runs through `openai_client`, and through a client of a few lines that calls the model's own `create` and `stream`:
what the official client sends and gives back makes no difference to a loop.
"""

from __future__ import annotations

import ast
import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from laploop.engine import EngineConfig
from laploop.models import ChatModel, Model, ScriptedModel, async_openai_client, openai_client

openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")

from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: E402  # after the check that it is there


class Item(NamedTuple):
    """A tool as the articles have them: what the model reads, and a function."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]

    @property
    def definition(self) -> dict[str, Any]:
        return {"type": "function", "function": {k: getattr(self, k) for k in ("name", "description", "parameters")}}


def taking(**properties: str) -> dict[str, Any]:
    """The schema of an object of these required properties, given by their types."""
    return {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()}, "required": [*properties]}


# --- clients -------------------------------------------------------------------------------------------------------


def direct_client(model: Model) -> Any:
    """What looks like `openai.OpenAI` and calls the model's own methods."""

    def create(*, model: str, messages: list[Any], stream: bool = False, **fields: Any) -> Any:
        plain = [m if isinstance(m, dict) else m.model_dump(exclude_unset=True) for m in messages]
        if stream:
            return (ChatCompletionChunk.model_validate(chunk) for chunk in answering.stream(plain, **fields))
        return ChatCompletion.model_validate(answering.create(plain, **fields))

    answering = model
    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def direct_async_client(model: Model) -> Any:
    """The same as `openai.AsyncOpenAI`, for streams."""

    async def create(**fields: Any) -> AsyncIterator[Any]:
        async def chunks() -> AsyncIterator[Any]:
            for chunk in sync.chat.completions.create(**fields):
                yield chunk

        return chunks()

    sync = direct_client(model)
    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


each_client = pytest.mark.parametrize("client_of", [openai_client, direct_client])
each_async_client = pytest.mark.parametrize("client_of", [async_openai_client, direct_async_client])


# --- thirty lines: a tool runner -----------------------------------------------------------------------------------


def run_tools(
    client: Any, model: str, messages: list[Any], tools: list[Item], max_steps: int = 5, **fields: Any
) -> str:
    """Ask, run what is called, tell the results, ask again, until nothing is called."""
    functions = {tool.name: tool.function for tool in tools}
    if tools:
        fields["tools"] = [tool.definition for tool in tools]
    history = list(messages)
    for _ in range(max_steps):
        message = client.chat.completions.create(model=model, messages=history, **fields).choices[0].message
        history.append(message)
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            try:
                if call.function.name not in functions:
                    raise LookupError(f"there is no tool {call.function.name}")
                content = functions[call.function.name](**json.loads(call.function.arguments or "{}"))
            except Exception as error:
                content = json.dumps({"error": str(error)})
            history.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise RuntimeError(f"no answer after {max_steps} steps")


ASKED = [{"role": "user", "content": "What is in stock?"}]
SHELF = {"nut": "7", "bolt": "9"}
STOCK = Item("stock", "How many of an article there are.", taking(article="string"), lambda article: SHELF[article])


@each_client
def test_the_runner_answers_at_once_where_no_tool_is_called(client_of: Callable[[Model], Any]) -> None:
    with ScriptedModel(["Nothing.", "Nothing, still."]) as model:
        assert run_tools(client_of(model), "scripted", ASKED, [STOCK]) == "Nothing."
        assert run_tools(client_of(model), "scripted", ASKED, []) == "Nothing, still."
    assert [r.tool_names for r in model.requests] == [["stock"], []]


@each_client
def test_the_runner_tells_each_result_behind_its_call(
    client_of: Callable[[Model], Any], calls: Callable[..., str]
) -> None:
    turns = [
        calls(("stock", {"article": "nut"}), ("stock", {"article": "bolt"})),
        calls(("stock", {"article": "nut"})),
        "7 nuts, 9 bolts.",
    ]
    with ScriptedModel(turns) as model:
        assert run_tools(client_of(model), "scripted", ASKED, [STOCK]) == "7 nuts, 9 bolts."
    history = model.requests[-1].messages
    assert [m["role"] for m in history] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    made = [c["id"] for m in history for c in m.get("tool_calls") or ()]
    told = [(m["tool_call_id"], m["content"]) for m in history if m["role"] == "tool"]
    assert told == list(zip(made, ["7", "9", "7"], strict=True))


@each_client
def test_the_runner_tells_the_model_of_errors(client_of: Callable[[Model], Any], calls: Callable[..., str]) -> None:
    turns = [calls(("price", {}), ("stock", {"article": "saw"}), ("stock", {"size": 3})), "I cannot say."]
    with ScriptedModel(turns) as model:
        assert run_tools(client_of(model), "scripted", ASKED, [STOCK]) == "I cannot say."
    told = [json.loads(m["content"])["error"] for m in model.requests[-1].messages if m["role"] == "tool"]
    for text, cause in zip(told, ["no tool price", "saw", "unexpected keyword argument 'size'"], strict=True):
        assert cause in text


@each_client
def test_the_runner_stops_at_its_fuse(client_of: Callable[[Model], Any], calls: Callable[..., str]) -> None:
    with (
        ScriptedModel([calls(("stock", {"article": "nut"}))] * 3) as model,
        pytest.raises(RuntimeError, match="3 steps"),
    ):
        run_tools(client_of(model), "scripted", ASKED, [STOCK], max_steps=3)


# --- streaming, with parallel calls --------------------------------------------------------------------------------


class Screen:
    """What a page would show."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.text = self.thoughts = ""


async def stream_message(client: Any, fields: dict[str, Any], screen: Screen) -> dict[str, Any]:
    """One reply, shown as it comes; the message is the one that a plain request would have given."""
    content, calls = "", {}
    async for chunk in await client.chat.completions.create(stream=True, **fields):
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        screen.thoughts += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
        if content.strip():
            screen.text += content[len(content) - len(delta.content or "") :]
        for part in delta.tool_calls or ():
            blank: dict[str, Any] = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(part.index, blank)
            call["id"] = part.id or call["id"]
            call["function"]["name"] += part.function.name or ""
            call["function"]["arguments"] += part.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return message | {"tool_calls": [calls[i] for i in sorted(calls)]} if calls else message


async def run_streaming(
    client: Any, model: str, messages: list[Any], tools: list[Item], screen: Screen, max_rounds: int = 5, **fields: Any
) -> str:
    """Rounds one after the other, the calls of a round together."""
    functions = {tool.name: tool.function for tool in tools}

    async def execute(call: dict[str, Any]) -> dict[str, Any]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        screen.lines.append(f"{name}({arguments})")
        try:
            result = functions[name](**json.loads(arguments or "{}"))
            content = str(await result if isinstance(result, Awaitable) else result)
        except Exception as error:
            content = f"failed: {error!r}"
        screen.lines.append(f"{name} → {content}")
        return {"role": "tool", "tool_call_id": call["id"], "content": content}

    history = list(messages)
    offered = {"model": model, "tools": [tool.definition for tool in tools], **fields}
    for _ in range(max_rounds):
        message = await stream_message(client, {"messages": history, **offered}, screen)
        if "tool_calls" not in message:
            return str(message["content"])
        history.append(message)
        history += await asyncio.gather(*map(execute, message["tool_calls"]))
    return f"no answer after {max_rounds} rounds"


@each_async_client
def test_the_calls_of_a_round_run_together_and_results_show_as_they_come(
    client_of: Callable[[Model], Any], calls: Callable[..., str]
) -> None:
    """Each call waits for the other to begin, the first also for the second to end: one by one would hang."""
    begun = {"Bern": asyncio.Event(), "Rome": asyncio.Event()}
    ended = asyncio.Event()

    async def weather(city: str) -> str:
        begun[city].set()
        await asyncio.wait_for(begun["Rome" if city == "Bern" else "Bern"].wait(), 30)
        if city == "Bern":
            await asyncio.wait_for(ended.wait(), 30)
        else:
            asyncio.get_running_loop().call_later(0.01, ended.set)
        return f"{len(city)} degrees"

    tool = Item("weather", "Weather of a city.", taking(city="string"), weather)
    turns = [calls(("weather", {"city": "Bern"}), ("weather", {"city": "Rome"})), "Both 4 degrees."]
    screen = Screen()
    with ScriptedModel(turns) as model:
        answer = asyncio.run(run_streaming(client_of(model), "scripted", ASKED, [tool], screen))
    assert answer == screen.text == "Both 4 degrees."
    assert screen.lines[:2] == ['weather({"city": "Bern"})', 'weather({"city": "Rome"})']
    assert screen.lines[2:] == ["weather → 4 degrees"] * 2
    first, second = (m for m in model.requests[1].messages if m["role"] == "tool")
    made = [c["id"] for c in model.requests[1].messages[1]["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == made


NEWS = Item(
    "get_news", "Titles and links on a topic.", taking(topic="string"), lambda topic: f"{topic}: https://n.example/17"
)
READ = Item("read_url", "The text of a page.", taking(url="string"), lambda url: f"text of {url}")


@each_async_client
def test_a_chain_takes_its_later_arguments_from_earlier_results(
    client_of: Callable[[Model], Any], calls: Callable[..., str]
) -> None:
    turns = [
        "<think>\nFirst the list.\n</think>\n\n" + calls(("get_news", {"topic": "AI"})),
        "<think>\nNow the page.\n</think>\n\n" + calls(("read_url", {"url": "https://n.example/17"})),
        "<think>\nEnough.\n</think>\n\nIt says: text.",
    ]
    screen = Screen()
    with ScriptedModel(turns, enable_thinking=True) as model:
        answer = asyncio.run(run_streaming(client_of(model), "scripted", ASKED, [NEWS, READ], screen))
    assert (answer, screen.text, screen.thoughts) == ("It says: text.",) * 2 + ("First the list.Now the page.Enough.",)
    assert screen.lines == [
        'get_news({"topic": "AI"})',
        "get_news → AI: https://n.example/17",
        'read_url({"url": "https://n.example/17"})',
        "read_url → text of https://n.example/17",
    ]


@each_async_client
def test_errors_go_back_and_the_fuse_holds(client_of: Callable[[Model], Any], calls: Callable[..., str]) -> None:
    turns = [calls(("nobody", {}), ("get_news", {"about": "AI"}))] * 2
    screen = Screen()
    with ScriptedModel(turns) as model:
        run = run_streaming(client_of(model), "scripted", ASKED, [NEWS], screen, max_rounds=2)
        assert asyncio.run(run) == "no answer after 2 rounds"
    results = [line for line in screen.lines if "→" in line]
    assert [line.partition(" → ")[2].partition("(")[0] for line in results] == [
        "failed: KeyError",
        "failed: TypeError",
    ] * 2
    assert screen.text == ""


# --- Thought, Action, Observation in plain text --------------------------------------------------------------------

RULES = """You answer questions with the help of tools. Never guess what a tool can tell.
To use one, write three lines, as

Thought: I need the height of a tower.
Action: tower_height
Action Input: {"tower": "Eiffel"}

and wait for the Observation, which is what the tool returned. When you know enough, write

Final Answer: the answer

Your tools:
"""
UNREADABLE = "That is neither an Action with its Action Input nor a Final Answer. Write one of them."
ENOUGH = "There are no rounds left. Write your Final Answer from what you have observed."


def tolerant_object(text: str) -> dict[str, Any]:
    """The object in a model's text: as JSON, else as what Python reads, without what stands around it."""
    inner = text[text.index("{") : text.rindex("}") + 1]
    for read in (json.loads, ast.literal_eval):
        try:
            if isinstance(value := read(inner), dict):
                return value
        except (ValueError, SyntaxError):
            continue
    raise ValueError(f"no object: {text}")


def converted(arguments: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """The arguments with numbers that came as text."""
    types = {"integer": int, "number": float}
    kinds = {name: types.get(schema["type"]) for name, schema in parameters["properties"].items()}
    return {k: kind(v) if isinstance(v, str) and (kind := kinds.get(k)) else v for k, v in arguments.items()}


class TextAgent:
    """The text protocol, kept on the caller's side: plain chat, no `tools`."""

    def __init__(self, client: Any, model: str, tools: list[Item], max_rounds: int = 8, **fields: Any) -> None:
        self.client, self.model, self.max_rounds, self.fields = client, model, max_rounds, fields
        self.tools = {tool.name: tool for tool in tools}
        listed = json.dumps([tool.definition["function"] for tool in tools], ensure_ascii=False, indent=1)
        self.messages: list[dict[str, str]] = [{"role": "system", "content": RULES + listed}]

    def _ask(self) -> str:
        reply = self.client.chat.completions.create(model=self.model, messages=self.messages, **self.fields)
        self.messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        return self.messages[-1]["content"]

    def _observe(self, name: str, arguments: str) -> str:
        if name not in self.tools:
            return f"Error: there is no tool {name}"
        tool = self.tools[name]
        try:
            return json.dumps(tool.function(**converted(tolerant_object(arguments), tool.parameters)))
        except Exception as error:
            return f"Error: {error}"

    def run(self, question: str) -> str:
        self.messages.append({"role": "user", "content": question})
        for _ in range(self.max_rounds):
            text = self._ask()
            if final := re.search(r"Final Answer:\s*(.+)", text, re.DOTALL):
                return final[1].strip()
            action = re.search(r"Action:\s*(\w+)\s*\nAction Input:\s*(\{.*\})", text, re.DOTALL)
            told = f"Observation: {self._observe(action[1], action[2])}" if action else UNREADABLE
            self.messages.append({"role": "user", "content": told})
        self.messages.append({"role": "user", "content": ENOUGH})
        return self._ask().partition("Final Answer:")[2].strip()


TIMES = Item("times", "The product of two whole numbers.", taking(a="integer", b="integer"), lambda a, b: a * b)
ROOM = Item("room", "The temperature of a room.", taking(name="string"), lambda name: {"celsius": len(name) * 4})
WANT_ROOM = 'Thought: I look at the room.\nAction: room\nAction Input: {"name": "attic"}'


@each_client
def test_the_text_agent_observes_and_answers(client_of: Callable[[Model], Any]) -> None:
    turns = [
        WANT_ROOM,
        'Thought: And the product.\nAction: times\nAction Input: {"a": "23", "b": 17}',
        "Thought: Both known.\nFinal Answer: 20 °C, and 391.",
    ]
    with ScriptedModel(turns) as model:
        agent = TextAgent(client_of(model), "scripted", [ROOM, TIMES])
        assert agent.run("How warm is the attic, and 23 times 17?") == "20 °C, and 391."
    assert [m["role"] for m in agent.messages] == ["system", "user", *["assistant", "user"] * 2, "assistant"]
    assert [m["content"] for m in agent.messages[3::2]] == ['Observation: {"celsius": 20}', "Observation: 391"]
    assert [m["content"] for m in agent.messages[2::2]] == turns
    assert all(not r.tools for r in model.requests)


@each_client
@pytest.mark.parametrize(
    "written",
    [
        "{'a': 23, 'b': 17}",
        '{"a": "23", "b": "17"}',
        "{'a': 23, 'b': 17,}",
        '{\n "a": 23,\n "b": 17\n}\nObservation: 9',
    ],
)
def test_the_text_agent_reads_arguments_as_models_write_them(written: str, client_of: Callable[[Model], Any]) -> None:
    with ScriptedModel([f"Action: times\nAction Input: {written}", "Final Answer: 391"]) as model:
        agent = TextAgent(client_of(model), "scripted", [TIMES])
        agent.run("23 times 17?")
    assert agent.messages[-2]["content"] == "Observation: 391"


@each_client
def test_the_text_agent_is_told_what_was_wrong(client_of: Callable[[Model], Any]) -> None:
    turns = [
        "Let me think.",
        "Action: cellar\nAction Input: {}",
        "Action: room\nAction Input: {nonsense}",
        "Final Answer: ?",
    ]
    with ScriptedModel(turns) as model:
        agent = TextAgent(client_of(model), "scripted", [ROOM])
        assert agent.run("How warm is it?") == "?"
    told = [m["content"] for m in agent.messages[3::2]]
    assert told == [
        UNREADABLE,
        "Observation: Error: there is no tool cellar",
        "Observation: Error: no object: {nonsense}",
    ]


@each_client
def test_the_text_agent_answers_at_its_fuse(client_of: Callable[[Model], Any]) -> None:
    with ScriptedModel([WANT_ROOM, WANT_ROOM, "Final Answer: 20 °C"]) as model:
        agent = TextAgent(client_of(model), "scripted", [ROOM], max_rounds=2)
        assert agent.run("How warm is it?") == "20 °C"
    assert agent.messages[-2]["content"] == ENOUGH


# --- on a real model -----------------------------------------------------------------------------------------------


QUESTION = "How warm is the kiln?"


@pytest.fixture(scope="module")
def small_model() -> Iterator[ChatModel]:
    with ChatModel.load("qwen2.5-coder-1.5b", config=EngineConfig(n_ctx=4096)) as model:
        yield model


@pytest.mark.slow
def test_each_loop_answers_on_a_real_model(small_model: ChatModel) -> None:
    """The temperature is drawn anew, so that only a model that read the result can say it."""
    degrees = random.SystemRandom().randint(100, 999)
    oven = Item(
        "get_temperature",
        "Return the temperature of a place in degrees Fahrenheit.",
        taking(place="string"),
        lambda place: json.dumps({"place": place, "fahrenheit": degrees}),
    )
    rules = "You are an assistant with tools. What a tool can tell, never guess: call it, then answer from its result."
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": QUESTION}]
    name, options = small_model.name, {"temperature": 0, "max_tokens": 200}
    with openai_client(small_model) as client:
        assert str(degrees) in run_tools(client, name, messages, [oven], **options)
        assert str(degrees) in TextAgent(client, name, [oven], stop=["Observation:"], **options).run(QUESTION)
    screen = Screen()
    assert str(degrees) in asyncio.run(
        run_streaming(async_openai_client(small_model), name, messages, [oven], screen, **options)
    )
    assert screen.lines[0] == 'get_temperature({"place": "kiln"})'
