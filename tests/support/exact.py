"""The settings under which llama.cpp computes a token alike whatever stands beside it in the batch, on Q8_0 weights.

With f32 and f16 caches it has one way for single tokens and another for several (ggml: `llamafile_sgemm` begins at two;
flash attention takes tiles), which round differently: on a synthetic 1.7B logits part by up to 0.16. Flash attention
over a bf16 cache goes row by row in any batch: no logit of 80 differs there, whatever the split.
"""

from __future__ import annotations

from typing import Any

EXACT: dict[str, Any] = {"flash_attn": "on", "type_k": "bf16", "type_v": "bf16"}
