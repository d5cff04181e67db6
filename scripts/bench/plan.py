"""Which tests are run: every combination of what was listed, in llama-bench's order (`get_cmd_params_instances`)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laploop.engine import EngineConfig
    from laploop.engine.bare import BareTest


@dataclass(frozen=True, slots=True)
class Plan:
    """The lists of the command line, in llama-bench's names and with its defaults.

    Args:
        n_threads: empty for what this machine allows.
        n_pg: tests that time a prompt and what is generated behind it together.
    """

    n_prompt: tuple[int, ...] = (512,)
    n_gen: tuple[int, ...] = (128,)
    n_pg: tuple[tuple[int, int], ...] = ()
    n_depth: tuple[int, ...] = (0,)
    n_batch: tuple[int, ...] = (2048,)
    n_ubatch: tuple[int, ...] = (512,)
    type_k: tuple[str, ...] = ("f16",)
    type_v: tuple[str, ...] = ("f16",)
    n_threads: tuple[int, ...] = ()
    n_gpu_layers: tuple[int, ...] = (-1,)
    flash_attn: tuple[str, ...] = ("auto",)

    def of_a_load(self, n_gpu_layers: int) -> list[tuple[EngineConfig, BareTest]]:
        """The tests that share a loaded model.

        Raises:
            EngineError: two settings exclude each other.
        """
        from laploop.engine import EngineConfig
        from laploop.engine.bare import BareTest
        from laploop.engine.hardware import n_threads

        rows = []
        for n_batch, n_ubatch, type_k, type_v, flash, threads, depth in itertools.product(
            self.n_batch,
            self.n_ubatch,
            self.type_k,
            self.type_v,
            self.flash_attn,
            self.n_threads or (n_threads(),),
            self.n_depth,
        ):
            pairs = [(n, 0) for n in self.n_prompt] + [(0, n) for n in self.n_gen] + list(self.n_pg)
            for prompt, gen in pairs:
                if not prompt + gen:
                    continue
                test = BareTest(prompt, gen, depth)
                config = EngineConfig(
                    n_ctx=test.n_ctx,
                    n_batch=n_batch,
                    n_ubatch=n_ubatch,
                    n_threads=threads,
                    n_gpu_layers=n_gpu_layers,
                    n_seq_max=1,
                    flash_attn=flash,  # type: ignore[arg-type]  # checked by EngineConfig
                    type_k=type_k,
                    type_v=type_v,
                    prefix_cache_bytes=0,
                )
                rows.append((config, test))
        return rows
