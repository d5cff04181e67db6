"""The repeat guard: its ladder of steps, and that it lets honest work pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, GuardFired, Guards, RunResult, check_history
from laploop.agent.guards import (
    MIN_REPEATED_CHARS,
    Fault,
    Ladder,
    RepeatGuard,
    announced_tool,
    call_key,
    n_before_repeats,
)
from laploop.models import ScriptedModel
from laploop.tools import tool

Calls = Callable[..., str]
# For the ladder: by default the loop asks for text before the third call, as the first test of same results shows.
LATE = Guards(same_result=None)


@tool
def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: where
    """
    return f"{place}: nothing new"


@tool
def ask(who: str) -> str:
    """Ask somebody.

    Args:
        who: whom
    """
    return f"{who} does not know"


def steps(result: RunResult) -> list[tuple[int, str]]:
    return [(r["round"], r["step"]) for r in result.trace.of_type("guard_fired")]


def test_the_ladder(calls: Calls) -> None:
    """Told at the third, the tool masked when it goes on, then all calls; what is said after that is the answer."""
    same = calls(("look", {"place": "shed"}))
    with ScriptedModel([same] * 5 + ["Nothing new."]) as model:
        result = Agent(model, [look, ask], max_rounds=50, guards=LATE).run("?")
    assert [r["executed"] for r in result.calls] == [True, True, False, False, False]
    assert steps(result) == [
        (3, "refused"),
        (4, "refused"),
        (4, "masked"),
        (5, "refused"),
        (5, "calls_masked"),
    ]
    only_ask = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ask"}}]},
    }
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "auto", "auto", only_ask, "none"]
    assert (result.stop_reason, result.answer, result.answered) == ("repeat", "Nothing new.", True)
    check_history(result.messages)


def test_the_same_result_again_is_followed_by_text(calls: Calls) -> None:
    """The model has what it needs: the third time it is not let call, and nothing is added to the prompt."""
    same = calls(("look", {"place": "shed"}))
    with ScriptedModel([same, same, "Nothing new."]) as model:
        result = Agent(model, [look, ask]).run("?")
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "none"]
    assert steps(result) == [(2, "calls_masked")]
    assert (result.stop_reason, result.answer) == ("answer", "Nothing new.")


def test_another_result_of_the_same_call_is_news(calls: Calls) -> None:
    states = iter(["running", "running, 50 %", "running, 50 %", "done"])

    @tool
    def job() -> str:
        """State of the job."""
        return next(states)

    model = ScriptedModel([calls(("job", {})), calls(("job", {})), "Half done."])
    assert Agent(model, [job]).run("?").answer == "Half done."
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "auto"]


def test_one_new_call_beside_an_old_one_is_news(calls: Calls) -> None:
    a, b = ("look", {"place": "a"}), ("look", {"place": "b"})
    model = ScriptedModel([calls(a), calls(a, b), calls(b), "Nothing."])
    Agent(model, [look]).run("?")
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "auto", "none"]


def test_who_calls_all_the_same_comes_to_the_ladder(calls: Calls) -> None:
    """A server need not hold the model to tool_choice "none"."""
    same = calls(("look", {"place": "shed"}))
    result = Agent(ScriptedModel([same] * 9), [look], max_rounds=50).run("?")
    assert [r["executed"] for r in result.calls][:3] == [True, True, False]
    assert result.stop_reason == "repeat"
    check_history(result.messages)


def test_the_refusal_tells_the_model_to_answer(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    model = ScriptedModel([same] * 3 + ["Nothing new."])
    result = Agent(model, [look, ask], guards=LATE).run("?")
    refused = result.calls[2]
    assert refused["is_error"]
    assert "Do not call it again" in refused["content"]
    assert result.stop_reason == "answer"


def test_a_masked_tool_comes_back_after_its_round(calls: Calls) -> None:
    same, other = calls(("look", {"place": "shed"})), calls(("ask", {"who": "Bob"}))
    model = ScriptedModel([same] * 4 + [other, calls(("look", {"place": "barn"})), "No."])
    result = Agent(model, [look, ask], max_rounds=50, guards=LATE).run("?")
    assert model.requests[5].tool_choice == "auto"
    assert result.stop_reason == "answer"
    assert result.calls[-1]["content"] == "barn: nothing new"


def test_alternating_between_two_answered_calls_is_a_repetition_too(calls: Calls) -> None:
    turns = [calls(("look", {"place": "a"})), calls(("look", {"place": "b"}))] * 10
    result = Agent(ScriptedModel(turns), [look, ask], max_rounds=50).run("?")
    assert result.stop_reason == "cycle"
    assert sum(r["executed"] for r in result.calls) == 3


def test_three_times_within_one_round(calls: Calls) -> None:
    model = ScriptedModel([calls(*[("look", {"place": "shed"})] * 3), "No."])
    result = Agent(model, [look]).run("?")
    contents = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert contents[:2] == ["shed: nothing new"] * 2
    assert "Not run" in contents[2]


def test_the_order_and_spelling_of_arguments_do_not_matter() -> None:
    assert call_key("f", '{"a": 1, "b": "\\u5317"}') == call_key("f", '{"b":"北","a":1}')
    assert call_key("f", '{"a": 1}') != call_key("f", '{"a": "1"}')
    assert call_key("f", '{"a": 1}') != call_key("g", '{"a": 1}')
    assert call_key("f", "{broken") == call_key("f", " {broken ")


def test_new_calls_between_old_ones_are_progress(calls: Calls) -> None:
    turns = []
    for n in range(6):
        turns += [calls(("look", {"place": "shed"})), calls(("ask", {"who": f"person {n}"}))]
    result = Agent(ScriptedModel([*turns, "done"]), [look, ask], max_rounds=50, guards=LATE).run("?")
    assert result.stop_reason == "answer"
    assert all(r["executed"] for r in result.calls)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), max_size=12))
def test_a_call_is_refused_only_after_it_was_let_through(rounds: list[list[str]]) -> None:
    guard = RepeatGuard()
    let_through: set[str] = set()
    for keys in rounds:
        for key, refused in zip(keys, guard.judge(keys), strict=True):
            assert key in let_through or not refused
            if not refused:
                let_through.add(key)


@given(st.integers(3, 30))
def test_the_same_round_for_ever_is_refused_from_the_third_on(n: int) -> None:
    guard = RepeatGuard()
    kinds = [guard.judge(["a", "b"]) for _ in range(n)]
    assert kinds == [["", ""]] * 2 + [["cycle", "cycle"]] * (n - 2)


def test_every_step_is_an_event(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    events: list[Any] = list(Agent(ScriptedModel([same] * 3 + ["ok"]), [look], guards=LATE).stream("?"))
    assert [e for e in events if isinstance(e, GuardFired)] == [GuardFired(3, "repeat", "refused", "look")]


@tool
def fetch(page: str) -> str:
    """Fetch a page.

    Args:
        page: which
    """
    raise RuntimeError("no network")


def test_the_same_error_three_times_is_told_and_the_tool_taken_away(calls: Calls) -> None:
    """Whatever the arguments: the guard for repetitions does not see it."""
    turns = [calls(("fetch", {"page": f"p{n}"})) for n in range(4)] + ["No network."]
    with ScriptedModel(turns) as model:
        result = Agent(model, [fetch, look], max_rounds=50).run("?")
    assert steps(result) == [(3, "nudged"), (4, "masked")]
    assert "fetch has failed" in model.requests[3].messages[-1]["content"]
    assert permitted(model.requests[4].tool_choice) == ["look"]
    assert (result.stop_reason, result.answer) == ("answer", "No network.")


def permitted(choice: Any) -> list[str]:
    return [t["function"]["name"] for t in choice["allowed_tools"]["tools"]]


def test_rounds_without_anything_new_come_to_an_end(calls: Calls) -> None:
    """Errors that differ each time: neither the same call nor the same error."""

    @tool
    def dig(depth: int) -> str:
        """Dig.

        Args:
            depth: how deep
        """
        raise RuntimeError(f"rock at {depth}")

    turns = [calls(("dig", {"depth": n})) for n in range(6)]
    model = ScriptedModel([*turns, "Only rock."])
    result = Agent(model, [dig], max_rounds=50).run("?")
    assert steps(result) == [(4, "nudged"), (5, "calls_masked"), (6, "refused"), (6, "final_answer")]
    assert (result.stop_reason, result.answer) == ("no_progress", "Only rock.")
    check_history(result.messages)


def test_results_that_are_new_are_progress_however_many(calls: Calls) -> None:
    turns = [calls(("look", {"place": f"room {n}"})) for n in range(20)]
    result = Agent(ScriptedModel([*turns, "Nothing."]), [look], max_rounds=50).run("?")
    assert steps(result) == []
    assert result.stop_reason == "answer"


def test_a_fault_is_corrected_once(calls: Calls) -> None:
    """The second time the tool is taken away: the same correction again would change nothing."""
    wrong = calls(("look", {"where": "shed"}))
    other = calls(("ask", {"who": "Bob"}))
    model = ScriptedModel([wrong, other, wrong, "I cannot."])
    result = Agent(model, [look, ask], max_rounds=50).run("?")
    assert "missing argument 'place'" in result.calls[0]["content"]
    assert [(r["guard"], r["step"]) for r in result.trace.of_type("guard_fired")] == [("arguments", "masked")]
    assert permitted(model.requests[3].tool_choice) == ["ask"]


def test_an_unknown_name_is_corrected_once(calls: Calls) -> None:
    model = ScriptedModel([calls(("lok", {})), calls(("lok", {})), "I cannot look."])
    result = Agent(model, [look, ask]).run("?")
    assert "Did you mean look?" in result.calls[0]["content"]
    assert [(r["guard"], r["step"]) for r in result.trace.of_type("guard_fired")] == [
        ("unknown_tool", "refused"),
        ("unknown_tool", "refused"),
        ("unknown_tool", "calls_masked"),
    ]
    assert (result.stop_reason, result.answer) == ("unknown_tool", "I cannot look.")


def test_calls_although_all_are_masked_end_in_a_final_answer(calls: Calls) -> None:
    """A server need not hold the model to tool_choice "none"."""
    same = calls(("look", {"place": "shed"}))
    model = ScriptedModel([same] * 6 + ["Fine."])
    result = Agent(model, [look], max_rounds=50, guards=LATE).run("?")
    assert steps(result)[-2:] == [(5, "refused"), (5, "final_answer")]
    assert "No more tool calls" in model.requests[5].messages[-1]["content"]
    assert result.rounds == 6
    assert not result.answered
    check_history(result.messages)


def test_silence_under_masked_calls_leads_to_the_final_answer(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    model = ScriptedModel([*[same] * 4, "", "Nothing."])
    result = Agent(model, [look], max_rounds=50, guards=LATE).run("?")
    assert (result.stop_reason, result.answer) == ("repeat", "Nothing.")
    check_history(result.messages)


def test_without_guards_only_the_limits_end_a_run(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    model = ScriptedModel([same] * 9 + ["Nothing."])
    result = Agent(model, [look], max_rounds=9, guards=Guards.off()).run("?")
    assert all(r["executed"] for r in result.calls)
    assert result.stop_reason == "max_rounds"


@given(st.lists(st.none() | st.integers(1, 4), max_size=30), st.sets(st.sampled_from("ab")))
def test_the_ladder_never_goes_down_but_to_its_foot(faults: list[int | None], maskable: set[str]) -> None:
    ladder, before = Ladder(), 0
    for at_least in faults:
        fault = None if at_least is None else Fault("x", frozenset("a"), at_least=at_least)
        step = ladder.climb(fault, frozenset(maskable))
        assert ladder.rung == 0 if fault is None else ladder.rung >= max(before, at_least or 0)
        assert (step == "masked") == bool(ladder.masked)
        assert ladder.masked < maskable or not ladder.masked
        before = ladder.rung


# -- the question again ------------------------------------------------------------------------------------------------


def test_the_question_said_again_is_no_answer(calls: Calls) -> None:
    """Regression: qwen2.5-coder 1.5b answered 现在几点了？ with itself, at every hour that is written with a zero."""
    model = ScriptedModel([calls(("look", {"place": "钟"})), "现在几点了", "三点四十四分。"])
    result = Agent(model, [look]).run("现在几点了？")
    assert (result.answer, result.answered, result.stop_reason) == ("三点四十四分。", True, "echo")
    assert steps(result) == [(2, "final_answer")]
    assert "现在几点了" not in [m["content"] for m in result.messages]  # it would be said once more
    check_history(result.messages)


def test_the_question_said_twice_leaves_what_the_tools_said(calls: Calls) -> None:
    model = ScriptedModel([calls(("look", {"place": "shed"})), *["What is in the shed?"] * 2])
    result = Agent(model, [look]).run("What is in the shed?")
    assert not result.answered and "nothing new" in result.answer


def test_a_part_of_the_question_is_no_answer_where_it_asks(calls: Calls) -> None:
    """Regression: a 0.5b answered "What is 23 times 17? Use the tool." with its first sentence."""
    question, seen = "Is the shed or the barn red? Look.", calls(("look", {"place": "shed"}))
    result = Agent(ScriptedModel([seen, "Is the shed or the barn red?", "The barn."]), [look]).run(question)
    assert (result.answer, result.stop_reason) == ("The barn.", "echo")
    result = Agent(ScriptedModel([seen, "The barn."]), [look]).run(question)
    assert (result.answer, result.stop_reason) == ("The barn.", "answer")


def test_a_greeting_is_answered_with_a_greeting() -> None:
    result = Agent(ScriptedModel(["你好！"]), [look]).run("你好")
    assert (result.answer, result.stop_reason) == ("你好！", "answer")


# --- texts


@given(st.text(max_size=30), st.lists(st.integers(100, 999), min_size=8, max_size=20, unique=True), st.integers(0, 30))
def test_the_beginning_of_a_text_that_repeats_itself(before: str, numbers: list[int], n_more: int) -> None:
    """What is kept holds all that came before the repetitions, and the piece once."""
    piece = "; ".join(map(str, numbers)) + "\n"
    n_times = MIN_REPEATED_CHARS // len(piece) + 5 + n_more
    n_told = n_before_repeats(before + n_times * piece, 5)
    assert n_told is not None
    assert n_told <= len(before) + len(piece)


@given(st.lists(st.integers(), max_size=200, unique=True))
def test_lines_that_differ_are_no_repetition(numbers: list[int]) -> None:
    text = "".join(f"| {n} | the same words in each line |\n" for n in numbers)
    assert n_before_repeats(text, 5) is None
    assert n_before_repeats(text + "-" * 5000, 5) is None
    assert n_before_repeats(text + "ha " * 2000, 5) is None


def test_a_text_that_repeats_itself_is_broken_off_and_the_answer_asked_for() -> None:
    """Regression: qwen2.5-coder-1.5b wrote the same paragraph for 2,048 tokens, and the run had no answer."""
    endless = "First this.\n" + "Then we compute it:\n(1 + 1) * 2\n" * 500
    with ScriptedModel([endless, "4."]) as model:
        result = Agent(model, [look]).run("?")
    assert (result.answer, result.stop_reason, result.answered) == ("4.", "repeat", True)
    assert steps(result) == [(1, "stopped"), (1, "final_answer")]
    kept = model.requests[1].messages[-2]["content"]
    assert kept.startswith("First this.\nThen we compute it:\n") and len(kept) < 100
    check_history(result.messages)


def test_a_final_answer_that_repeats_itself_ends_where_it_begins_to() -> None:
    endless = "So it is four, and nothing else. " * 500
    result = Agent(ScriptedModel([endless, endless]), [look]).run("?")
    assert (result.answer, result.answered) == ("So it is four, and nothing else. ", True)
    without = Agent(ScriptedModel([endless]), [look], guards=Guards.off()).run("?")
    assert without.answer == endless


@pytest.mark.parametrize("again", ["OK: What is in the shed?", "好的，What is in the shed?", "What is in the shed?"])
def test_the_question_behind_a_word_of_assent_is_no_answer(calls: Calls, again: str) -> None:
    """Regression: qwen2.5-coder 1.5b answered 现在几点？另外帮我算 59 乘以 34。 with 好的， and the question."""
    model = ScriptedModel([calls(("look", {"place": "shed"})), again, "A rake."])
    result = Agent(model, [look]).run("What is in the shed?")
    assert (result.answer, result.stop_reason) == ("A rake.", "echo")


@pytest.mark.parametrize(
    ("question", "answer"), [("1+1", "The result is 11."), ("？？", "Nothing."), ("AI?", "It is AI")]
)
def test_an_answer_that_ends_like_a_short_question_is_one(calls: Calls, question: str, answer: str) -> None:
    result = Agent(ScriptedModel([calls(("look", {"place": "shed"})), answer]), [look]).run(question)
    assert (result.answer, result.stop_reason) == (answer, "answer")


# -- calls that are shown ----------------------------------------------------------------------------------------------


def test_a_call_that_is_shown_is_made(calls: Calls) -> None:
    """Regression: qwen2.5-coder 1.5b explained to the user how get_weather is called, and ended there."""
    spoken = 'To answer this, I\'ll need the `look` function:\n```json\n{"name": "look", "arguments": {}}\n```'
    with ScriptedModel([spoken, calls(("look", {"place": "shed"})), "Nothing new."]) as model:
        result = Agent(model, [look, ask]).run("What is in the shed?")
    only_look = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]},
    }
    assert [r.tool_choice for r in model.requests] == ["auto", only_look, "auto"]
    assert model.requests[1].messages == model.requests[0].messages, "what was said is left out"
    assert steps(result) == [(1, "retry")]
    assert (result.answer, result.stop_reason) == ("Nothing new.", "answer")
    check_history(result.messages)


def test_who_only_shows_calls_ends(calls: Calls) -> None:
    spoken = "Use ask(who='Ann')."
    result = Agent(ScriptedModel([spoken] * 3), [look, ask]).run("Who knows?")
    assert (result.answer, result.stop_reason, result.rounds) == (spoken, "answer", 3)
    assert Agent(ScriptedModel([spoken]), [look, ask], guards=Guards.off()).run("Who knows?").rounds == 1


def test_a_tool_that_changes_something_is_not_called_because_its_call_is_shown() -> None:
    @tool(effects={"irreversible"})
    def wipe() -> str:
        """Wipe the disk."""
        raise AssertionError

    result = Agent(ScriptedModel(["I will not call wipe() for you."]), [wipe]).run("Wipe it.")
    assert (result.rounds, result.calls) == (1, [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('Use this: {"name": "look", "arguments": {"place": "shed"}}', "look"),
        ("First ask('Ann'), then look(x).", "ask"),
        ("look(place='shed')", "look"),
        ("I'll need to use the `look` function.", None),
        ("look(x), ask(y), tell(z)", None),
        ("I can `look`, `ask` and `tell`.", None),
        ("Have a look: it is red. I ask you.", None),
        ("def look(place):\n    return place", None),
        ("overlook(x) and `lookup`", None),
        ("", None),
    ],
)
def test_whose_call_a_text_shows(text: str, name: str | None) -> None:
    assert announced_tool(text, ["look", "ask", "tell"]) == name


def test_what_a_tool_gave_may_be_shown(calls: Calls) -> None:
    model = ScriptedModel([calls(("look", {"place": "shed"})), "look(shed) says: nothing new."])
    assert Agent(model, [look]).run("?").rounds == 2
