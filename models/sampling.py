"""How a reply is sampled: the request's settings over the family's defaults for this kind of round.

Knows kinds of rounds and settings; not tokens, nor how they are chosen.
"""

from __future__ import annotations

from typing import Any

from laploop.engine import SamplingParams

from .requests.request import Request

# Recommended by the Qwen3 model card, section "Best Practices"; the second also for Qwen2.5 (generation_config.json).
_THINKING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
_PLAIN = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
# The first tokens of a reply decide whether to call and what to speak of; they are greedy at any temperature. With
# none 15 of 25 demo runs went right, with one 19, with four 21 (docs/log.md).
_N_DECIDING = 4
# Choosing a tool and copying values is no place for chance.
_TOOLS = {"temperature": 0.0, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
_ASKED = (
    "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
)  # fmt: skip


def sampling_of(request: Request, thinking: bool, index: int = 0) -> SamplingParams:
    """The sampling of a choice.

    Args:
        request: what was asked for.
        thinking: whether the reply may think.
        index: of the choice; each has a seed of its own.
    """
    settings: dict[str, Any] = dict(_THINKING if thinking else _TOOLS if request.allowed_names else _PLAIN)
    if request.tools and not request.must_call and not thinking:
        settings["n_greedy"] = _N_DECIDING
    settings |= {name: value for name in _ASKED if (value := getattr(request, name)) is not None}
    if request.seed is not None:
        settings["seed"] = request.seed + index
    if request.logprobs:
        settings["n_logprobs"] = request.top_logprobs or 0
    return SamplingParams(**settings)
