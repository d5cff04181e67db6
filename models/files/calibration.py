"""How fast this machine is: a short measurement from which the speed of any model follows.

A decode reads each weight once and does a little for each layer and each entry of the vocabulary; a prompt computes
with each weight. So random-weight models are run for a moment: one of a few wide layers for each type of weight, larger
than the caches, and narrow ones that have next to no weights. What they took, solved for those costs, is kept on disk
until the machine, the threads or the build of llama.cpp change. Knows no model of the catalogue.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from laploop.engine.folders import cache_dir
from laploop.engine.gguf import GGUFFile
from laploop.engine.hardware import largest_cache_bytes, n_threads, processor_name

from .progress import Progress, ProgressFunction, silent
from .store import write_json
from .synthetic import TENSOR_TYPE_BY_NAME, TYPES, Shape, write_shape

if TYPE_CHECKING:
    from laploop.engine import EngineConfig

VERSION = 1
N_PROMPT = 256
N_DECODED = 16
_WIDE = {"n_embd": 2048, "n_ff": 6144, "n_heads": 16, "n_kv_heads": 8, "head_dim": 128}
_NARROW = {"n_embd": 128, "n_ff": 128, "n_heads": 2, "n_kv_heads": 1, "head_dim": 64}
_FEW, _MANY = 4, 32  # layers of the narrow models
_VOCAB, _LARGE_VOCAB = 1000, 150_000
_LEAST_BYTES = 100_000_000


@dataclass(frozen=True)
class Calibration:
    """What a token costs here; all times in seconds.

    Args:
        step_s: a decode of nothing.
        layer_s: what a layer costs beside its weights.
        entry_s: what an entry of the vocabulary costs beside its weights: the sampler looks at each.
        bytes_per_s: type of the weights → how fast they are read, one token at a time.
        flops_per_s: type of the weights → how fast a prompt is computed with them.
    """

    step_s: float
    layer_s: float
    entry_s: float
    bytes_per_s: dict[str, float] = field(default_factory=dict)
    flops_per_s: dict[str, float] = field(default_factory=dict)

    def decode_s(self, header: GGUFFile) -> float:
        """Seconds for a token of the model, at a short context."""
        layers, n_vocab = _layers(header), len(header.metadata.get("tokenizer.ggml.tokens") or ())
        read_s = sum(n / self.bytes_per_s[measured(kind)] for kind, n in _read_bytes(header).items())
        return self.step_s + layers * self.layer_s + n_vocab * self.entry_s + read_s

    def prompt_s(self, header: GGUFFile) -> float:
        """Seconds for a token of a prompt of some hundred tokens."""
        flops = {kind: 2 * _elements(kind, n) for kind, n in _read_bytes(header, with_head=False).items()}
        return sum(n / self.flops_per_s[measured(kind)] for kind, n in flops.items())


def measured(tensor_type: str) -> str:
    """The type whose speed stands for this one: itself, or of those that are measured the one of nearest size."""
    if tensor_type in TYPES:
        return tensor_type

    def bits(name: str) -> float:
        kind = TENSOR_TYPE_BY_NAME[name]
        return kind.block_bytes / kind.block_size

    wanted = bits(tensor_type) if tensor_type in TENSOR_TYPE_BY_NAME else bits("Q4_K")
    return min(TYPES, key=lambda name: abs(bits(name) - wanted))


def calibrate(
    headers: Iterable[GGUFFile],
    config: EngineConfig | None = None,
    progress: ProgressFunction = silent,
    *,
    again: bool = False,
) -> Calibration:
    """Measure what the models need that is not known yet: about two seconds for each type of weight.

    Args:
        headers: of the models whose speed will be asked for.
        config: threads and layers on the GPU count, and belong to what is kept.
        progress: told what is measured.
        again: measure all anew.

    Raises:
        EngineError: llama.cpp cannot run a model of 100 MB here.
        OSError: there is no room for it on the disk.
    """
    from laploop.engine import EngineConfig

    config = config or EngineConfig()
    path = cache_dir() / "calibration" / f"{_key(config)}.json"
    known = None if again else _load(path)
    wanted = dict.fromkeys(measured(kind) for header in headers for kind in _read_bytes(header))
    missing = [kind for kind in wanted if known is None or kind not in known.bytes_per_s]
    if known is not None and not missing:
        return known
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        bench = _Bench(Path(folder) / "m.gguf", config)
        progress(Progress("measuring this machine", 0, len(missing) + 1, "disk"))
        now = known or bench.overheads()
        for n, kind in enumerate(missing, 1):
            progress(Progress("measuring this machine", n, len(missing) + 1, "disk"))
            read, computed = bench.rates(kind, now)
            now.bytes_per_s[kind], now.flops_per_s[kind] = read, computed
        progress(Progress("measuring this machine", len(missing) + 1, len(missing) + 1, "disk"))
    write_json(path, {"version": VERSION, **asdict(now)})
    return now


class _Bench:
    """Writes models to `path`, one after the other, and times them."""

    def __init__(self, path: Path, config: EngineConfig) -> None:
        self._path, self._config = path, config

    def overheads(self) -> Calibration:
        few_s, many_s = (self._time(_shape(_NARROW, n, _VOCAB), "Q8_0")[0] for n in (_FEW, _MANY))
        large_s = self._time(_shape(_NARROW, _FEW, _LARGE_VOCAB), "Q8_0")[0]
        layer_s = max(0.0, many_s - few_s) / (_MANY - _FEW)
        return Calibration(
            step_s=max(0.0, few_s - _FEW * layer_s),
            layer_s=layer_s,
            entry_s=max(0.0, large_s - few_s) / (_LARGE_VOCAB - _VOCAB),
        )

    def rates(self, kind: str, overheads: Calibration) -> tuple[float, float]:
        """Bytes a second for a token, floating point operations a second for a prompt."""
        least = max(_LEAST_BYTES, 3 * largest_cache_bytes())
        layer_bytes = _matrix_elements() * TENSOR_TYPE_BY_NAME[kind].block_bytes / TENSOR_TYPE_BY_NAME[kind].block_size
        n_layers = math.ceil(least / layer_bytes)
        decode_s, prompt_s = self._time(_shape(_WIDE, n_layers, _VOCAB), kind)
        rest_s = overheads.step_s + n_layers * overheads.layer_s
        return (
            n_layers * layer_bytes / max(decode_s - rest_s, decode_s / 10),
            2 * n_layers * _matrix_elements() / prompt_s,
        )

    def _time(self, shape: Shape, kind: str) -> tuple[float, float]:
        """Seconds for a decoded token (the median), and for a token of a prompt."""
        from dataclasses import replace

        from laploop.engine import Engine, SamplingParams

        write_shape(self._path, shape, kind)
        config = replace(self._config, n_ctx=N_PROMPT + N_DECODED + 8, n_seq_max=1, draft_max=0, prefix_cache_bytes=0)
        with Engine.load(self._path, config) as engine:
            never = dict.fromkeys(engine.vocabulary.eog, -1e6)
            tokens = [100 + i % 800 for i in range(N_PROMPT)]
            sampling = SamplingParams(logit_bias=never, seed=1)
            list(engine.generate(tokens[:16], sampling, max_tokens=4))  # pages of the file, threads, buffers
            steps, prompts = [], []
            for first in (98, 99):  # twice, each from the start: what else runs here disturbs one of them at most
                sequence = engine.prepare([first, *tokens[1:]], sampling, None, N_DECODED)
                begun = [sequence.timings.generate_s for _ in engine.read(sequence)]
                steps += [after - before for before, after in itertools.pairwise(begun)]
                prompts.append(sequence.timings.prompt_s / N_PROMPT)
            return statistics.median(steps), min(prompts)


def _shape(width: dict[str, int], n_layers: int, n_vocab: int) -> Shape:
    return Shape("qwen3", n_layers=n_layers, n_vocab=n_vocab, n_ctx=4096, rope_base=1e6, tied=True, **width)


def _matrix_elements() -> int:
    """Of a wide layer."""
    n_q, n_kv = _WIDE["n_heads"] * _WIDE["head_dim"], _WIDE["n_kv_heads"] * _WIDE["head_dim"]
    return _WIDE["n_embd"] * (2 * n_q + 2 * n_kv + 3 * _WIDE["n_ff"])


def _layers(header: GGUFFile) -> int:
    return int(header.metadata.get(f"{header.metadata.get('general.architecture')}.block_count", 0))


def _read_bytes(header: GGUFFile, *, with_head: bool = True) -> Counter[str]:
    """Type → bytes of the matrices that every token goes through: of an embedding only a row is read, unless it is the
    output matrix too; of experts only some. Without the output matrix, which few tokens of a prompt need."""
    arch = header.metadata.get("general.architecture")
    n_experts = int(header.metadata.get(f"{arch}.expert_count", 0) or 0)
    n_used = int(header.metadata.get(f"{arch}.expert_used_count", 0) or 0)
    has_output = any(tensor.name == "output.weight" for tensor in header.tensors)
    read: Counter[str] = Counter()
    for tensor in header.tensors:
        is_head = tensor.name == ("output.weight" if has_output else "token_embd.weight")
        if len(tensor.shape) < 2 or (tensor.name == "token_embd.weight" and not is_head) or (is_head and not with_head):
            continue
        share = n_used / n_experts if "_exps." in tensor.name and n_experts else 1.0
        read[tensor.type] += math.ceil((tensor.size_bytes or 0) * share)
    return read


def _elements(tensor_type: str, n_bytes: int) -> float:
    kind = TENSOR_TYPE_BY_NAME.get(tensor_type) or TENSOR_TYPE_BY_NAME["Q4_K"]
    return n_bytes * kind.block_size / kind.block_bytes


def _key(config: EngineConfig) -> str:
    from laploop.engine import native

    facts = [VERSION, processor_name(), config.n_threads or n_threads(), config.n_gpu_layers, *native.build_facts()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _load(path: Path) -> Calibration | None:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return Calibration(**facts) if facts.pop("version") == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none yet, or a damaged one: measuring again is the remedy for both
