"""How a model family writes thoughts and calls into text: data, not branches.

This module does not know how to parse or render; `parser` and `tool_grammar` read these settings.
Where a setting comes from stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from laploop.engine.values import shown

from .errors import RequestError
from .language import Language


@dataclass(frozen=True, slots=True)
class CallShape:
    """How one call is spelled: head, name, middle, arguments, tail.

    Args:
        head, middle, tail: the texts around name and arguments. The default is JSON's object of both.
        arguments: "json": one JSON object. "tags": `<parameter=KEY>`, a line feed, the value, a line feed,
            `</parameter>`, each on lines of its own; texts stand there as they are, all else as JSON. "quoted": an
            object with bare keys and no spaces, its texts as they are between two `quote`.
        quote: that mark.
        id_behind_name: what stands in front of a call's id, where that follows the name.
        id_behind_arguments: where it may follow the arguments: what stands in front of it, closed by a quotation mark.
    """

    head: str = '{"name": "'
    middle: str = '", "arguments": '
    tail: str = "}"
    arguments: Literal["json", "tags", "quoted"] = "json"
    quote: str = ""
    id_behind_name: str = ""
    id_behind_arguments: str = ""

    @property
    def is_json(self) -> bool:
        """Whether the whole call is one JSON object."""
        return self.head.startswith("{")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The marks around one or more calls.

    Args:
        open: text (often one special token) that opens the block; empty where the call itself does.
        close: text that closes it; empty where the end of the call does.
        many: whether several calls stand in one block.
        shape: how a call is spelled.
        lead, trail: what stands between the marks and the calls.
        joint: what stands between two calls: in the block if it has room for `many`, else between two blocks. None: a
            reply has one call at most.
        is_written: whether a grammar lets it be written; else it is only understood.
        whole_answer: the block counts only at the start of the answer and only for a tool that was offered:
            for marks that ordinary answers use too (a code fence).
    """

    open: str
    close: str
    many: bool = False
    whole_answer: bool = False
    is_written: bool = True
    shape: CallShape = CallShape()
    lead: str = "\n"
    trail: str = "\n"
    joint: str | None = "\n"


@dataclass(frozen=True, slots=True)
class Labels:
    """The words that begin the sections of a text protocol, each at the start of a line.

    Args:
        thought: reasoning.
        action: the name of one tool.
        action_input: the arguments of that call, one JSON object.
        observation: a tool's result; written by us, never by the model.
        answer: the final answer.
    """

    thought: str
    action: str
    action_input: str
    observation: str
    answer: str


@dataclass(frozen=True, slots=True)
class LabelVariants:
    """What models write instead of the labels, without colon, in any case; the parser takes it, nothing else writes it.

    Args:
        thought, action, action_input, observation, answer: other words for these labels.
        no_action: what stands behind the label of an action where no tool is wanted.
        no_input: what stands behind the label of an input where there is none.
        answer_actions: what stands there where the action's input is the final answer.
    """

    thought: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    action_input: tuple[str, ...] = ()
    observation: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    no_action: tuple[str, ...] = ()
    no_input: tuple[str, ...] = ()
    answer_actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family's syntax.

    Args:
        name: short name, as given to `parse_output(dialect=…)`.
        think: opening and closing tag of a thinking block, or None where the family does not think.
        wrappers: ways to write calls; the first is the native one, which the template shows.
        think_cut: what closes a thinking block whose budget is used up, so that the answer follows.
        think_budget: most tokens of thoughts where the request does not say; None for what there is room for.
        text_never_starts_with: characters with which plain text may not begin while calls are possible, because
            the family would begin a call in a wrapper of its own invention with them.
        stray: characters that the family leaves in front of a call without marks: what remains of a wrapper whose
            first character it could not write. With more than the call behind them they are text.
        call_share: a reply to a person, without thoughts, that may be a call or text is a call where the probability
            of all tokens that can begin one, times that of the tool's name, is at least this (opening.py). None: the
            most probable token decides.
        again_share: behind results, a reply is text where all tokens that can begin a call have at least this
            probability, but less if the calls do not count that have their results already (opening.py).
        from_results: a sentence for each language that asks for the answer once more where a reply behind results has
            to be text; `{question}` in it is what the user said last. Families that were trained on results need none.
        more_share: behind a call of a block of several, another one follows if it has this share of the probability.
        marks: texts inside calls and thoughts that are tokens of their own where the vocabulary has them.
        id_length: letters and digits of a call's id, where the template takes no other ids.
        calls_in_content: whether the template leaves calls out, so that they are written into the content.
        labels: the sections of a text protocol; then there are no wrappers, and the prompt shows the tools.
        variants: what models write instead of these labels.
    """

    name: str
    think: tuple[str, str] | None
    wrappers: tuple[Wrapper, ...]
    think_cut: str = ""
    think_budget: int | None = None
    text_never_starts_with: str = ""
    stray: str = ""
    call_share: float | None = None
    again_share: float | None = None
    from_results: Mapping[Language, str] = field(default_factory=dict, hash=False)
    more_share: float | None = None
    marks: tuple[str, ...] = ()
    id_length: int | None = None
    calls_in_content: bool = False
    labels: Labels | None = None
    variants: LabelVariants = LabelVariants()

    @property
    def native(self) -> Wrapper:
        """The wrapper that the family's template shows to the model."""
        return self.wrappers[0]


def _named(opening: str, shape: CallShape, closing: str = "") -> Wrapper:
    """Calls one behind the other, with nothing between them."""
    return Wrapper(opening, closing, shape=shape, lead="", trail="", joint="")


_TOOL_CALL = Wrapper("<tool_call>", "</tool_call>")
_PARAMETERS = CallShape(middle='", "parameters": ')
_TAGGED = Wrapper("<tool_call>", "</tool_call>", shape=CallShape("<function=", ">\n", "</function>", "tags"))
_UNOPENED_TAGGED = (
    Wrapper("<function=", "</tool_call>", shape=CallShape("", ">\n", "</function>", "tags"), lead="", is_written=False),
)
_QWEN_THINKS = ("<think>", "</think>")
# The closing words are those of Qwen's own quickstart on thinking budgets, which the model has seen in training.
_QWEN_CUT = (
    "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now."
    "\n</think>\n\n"
)

DIALECTS: dict[str, Dialect] = {
    # Qwen/Qwen3-1.7B, chat template in tokenizer_config.json. Qwen3-2507's thinking models too, whose prompts open the
    # block; its instruct models do not think, and write as Qwen2.5 does.
    "qwen3": Dialect("qwen3", _QWEN_THINKS, (_TOOL_CALL,), think_cut=_QWEN_CUT),
    # Qwen/Qwen2.5-*-Instruct, chat template; the Hermes 2 Pro format.
    "qwen2.5": Dialect("qwen2.5", None, (_TOOL_CALL,)),
    # The template shows <tool_call>, the coder models answer with these two instead (measured, greedy, 0.5b and 1.5b).
    # Only <tools> is written: behind a call in it, the probability of another one is 0.90 to 0.98
    # where the question asks for several, 0.00 to 0.17 where it asks for one, and 0.63 to 0.90 in 8 of 10 chains, whose
    # next call depends on the result. In a fence it is 0.10 to 0.78, 0.00 to 0.01, 0.07 to 0.56 (docs/log.md).
    "qwen2.5-coder": Dialect(
        "qwen2.5-coder",
        None,
        (
            _TOOL_CALL,
            Wrapper("<tools>", "</tools>", many=True),
            Wrapper("```json", "```", many=True, whole_answer=True, is_written=False),
        ),
        text_never_starts_with="<`{[",
        call_share=0.45,
        more_share=0.9,
        # Behind one result the 1.5b begins a call with 0.40 to 0.94 whether it needs one or not; that it is another
        # call comes to 0.01 to 0.11 where the result is all, 0.38 to 0.87 where another is missing (docs/log.md).
        again_share=0.35,
        from_results={"en": "Answer from the results: {question}", "zh": "请根据结果回答：{question}"},
        # Seen with the 1.5b in the place of the four above: >{"name": …} and ={"name": …}.
        stray=">=",
    ),
    # NousResearch/Hermes-2-Pro and Hermes-3, templates for tool use; also Granite 4, Bielik 3, MiMo.
    "hermes": Dialect("hermes", None, (_TOOL_CALL,)),
    # Qwen/Qwen3-Coder-*, chat template; Qwen3.5 and Nemotron 3 write the same behind their thoughts. The models leave
    # the opening mark out at times.
    "qwen3-coder": Dialect("qwen3-coder", None, (_TAGGED, *_UNOPENED_TAGGED)),
    "qwen3.5": Dialect("qwen3.5", _QWEN_THINKS, (_TAGGED, *_UNOPENED_TAGGED), think_cut=_QWEN_CUT),
    # meta-llama/Llama-3.1, 3.2, 3.3, chat templates: the object alone, one a message. The mark in front is that of the
    # built-in tools; 3.1 writes it before others too.
    "llama3": Dialect(
        "llama3",
        None,
        (
            Wrapper("", "", shape=_PARAMETERS, lead="", trail="", joint=None),
            Wrapper("<|python_tag|>", "", shape=_PARAMETERS, lead="", trail="", joint=None, is_written=False),
        ),
        text_never_starts_with="{",
    ),
    # mistralai: three spellings, named by the versions of Mistral's tokenizers. v3: Mistral 7B v0.3, Nemo.
    "mistral-v3": Dialect(
        "mistral-v3",
        None,
        (
            Wrapper(
                "[TOOL_CALLS]",
                "",
                many=True,
                shape=CallShape(id_behind_arguments=', "id": "'),
                lead="[",
                trail="]",
                joint=", ",
            ),
        ),
        id_length=9,
    ),
    # Mistral Small 3.2.
    "mistral-v11": Dialect(
        "mistral-v11",
        None,
        (_named("[TOOL_CALLS]", CallShape("", "[ARGS]", "", id_behind_name="[CALL_ID]")),),
        marks=("[CALL_ID]", "[ARGS]"),
        id_length=9,
    ),
    # Devstral, Ministral 3 (whose reasoning models think).
    "mistral-v13": Dialect(
        "mistral-v13",
        None,
        (_named("[TOOL_CALLS]", CallShape("", "[ARGS]", "")),),
        marks=("[ARGS]",),
        id_length=9,
    ),
    "ministral-reasoning": Dialect(
        "ministral-reasoning",
        ("[THINK]", "[/THINK]"),
        (_named("[TOOL_CALLS]", CallShape("", "[ARGS]", "")),),
        think_cut="[/THINK]",
        marks=("[THINK]", "[/THINK]", "[ARGS]"),
        id_length=9,
    ),
    # google/gemma-4-*, chat template.
    "gemma4": Dialect(
        "gemma4",
        ("<|channel>thought", "<channel|>"),
        (_named("<|tool_call>", CallShape("call:", "", "", "quoted", '<|"|>'), "<tool_call|>"),),
        think_cut="\n<channel|>",
        marks=("<|channel>", "<channel|>", '<|"|>'),
    ),
    # google/functiongemma-270m-it, model card.
    "functiongemma": Dialect(
        "functiongemma",
        None,
        (_named("<start_function_call>", CallShape("call:", "", "", "quoted", "<escape>"), "<end_function_call>"),),
        marks=("<escape>",),
    ),
    # ReAct (Yao et al. 2022, arXiv:2210.03629) in the spelling that its prompts made common. For GGUFs whose template
    # has no place for tools.
    "react": Dialect(
        "react",
        None,
        (),
        # A thought is one line. Small models do not end theirs: 0.5b models repeat a sentence until they are stopped.
        think_cut="\n",
        think_budget=128,
        labels=Labels("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:"),
        # Seen with small models, with LangChain's prompts (Answer, Final Answer as an action), with the paper's own
        # (Act 1, Obs 1, Finish[…]), and with Chinese ones.
        variants=LabelVariants(
            thought=("Thoughts", "思考", "想法"),
            action=("Act", "行动", "动作"),
            action_input=("Action Inputs", "Action Arguments", "行动输入", "动作输入", "行动参数"),
            observation=("Observations", "Obs", "观察", "观察结果"),
            answer=("Answer", "最终答案", "最终回答", "答案"),
            no_action=("none", "null", "nothing", "n/a", "no action", "no tool", "no action needed", "无", "不需要"),
            no_input=("none", "null", "n/a", "no input", "无"),
            answer_actions=("Final Answer", "Answer", "Finish", "最终答案", "最终回答"),
        ),
    ),
}


def get_dialect(name: str | Dialect) -> Dialect:
    """Return the dialect called `name`, or what is one already.

    Raises:
        RequestError: no such dialect; the message lists the names.
    """
    if isinstance(name, Dialect):
        return name
    if not isinstance(name, str) or name not in DIALECTS:
        raise RequestError(f"unknown dialect {shown(name)}; known: {', '.join(DIALECTS)}")
    return DIALECTS[name]
