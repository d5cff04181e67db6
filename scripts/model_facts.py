"""What is in a model file, for `laploop models show`: from the headers of all its parts, nothing is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("bos", "eos", "eot", "padding", "unknown")
CONTEXTS = (4096, 8192, 32768)
KV_TYPES = ("f16", "q8_0")


def found_path(spec: str) -> Path:
    """Where the model lies on this machine. Raises like `resolve_model(offline=True)`."""
    from laploop.models.files.resolve import on_disk, resolve_model
    from laploop.models.files.spec import NameSpec, parse_spec
    from laploop.models.files.store import Store

    try:
        parsed = parse_spec(spec)
    except Exception:  # noqa: BLE001  (resolve_model raises it again, and knows more to say)
        parsed = None
    # a file of the hub's cache that was never checked would be hashed first: the header needs no hash
    here = on_disk(parsed.entry, Store.default()) if isinstance(parsed, NameSpec) else None
    return here or resolve_model(spec, offline=True).path


def facts(path: Path, contexts: Sequence[int] = CONTEXTS, kv_types: Sequence[str] = KV_TYPES) -> dict[str, Any]:
    """What the headers say.

    Args:
        path: the first part.
        contexts: tokens for which the memory is reckoned; longer than trained ones are left out.
        kv_types: types of the KV cache for that.

    Raises:
        BadModelFileError: a part is missing, or its header is damaged.
    """
    from laploop.engine.gguf import read_gguf, shard_paths
    from laploop.models.files.store import Store

    files = [read_gguf(part) for part in shard_paths(path)]
    metadata = files[0].metadata
    tensors = [tensor for file in files for tensor in file.tensors]
    arch = metadata.get("general.architecture", "")
    elements: Counter[str] = Counter()
    for tensor in tensors:
        count = 1
        for dim in tensor.shape:
            count *= dim
        elements[tensor.type] += count
    n_parameters = elements.total()
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    special = {}
    for kind in SPECIAL:
        number = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if isinstance(number, int) and number < len(tokens):
            special[kind] = f"{number} {tokens[number].decode('utf-8', 'replace')}"
    return {
        "path": str(path),
        "origin": _origin(path),
        "name": metadata.get("general.name"),
        "architecture": arch,
        "parameters": n_parameters,
        "quantisation": {kind: f"{100 * n / max(n_parameters, 1):.1f} %" for kind, n in elements.most_common()},
        "size_bytes": sum(file.size_bytes for file in files),
        "parts": len(files),
        "context_length": metadata.get(f"{arch}.context_length"),
        "layers": metadata.get(f"{arch}.block_count"),
        "embedding_length": metadata.get(f"{arch}.embedding_length"),
        "vocabulary": len(tokens),
        "special_tokens": special,
        **_template(metadata, path.stem),
        "memory_bytes": _memory(files[0], contexts, kv_types),
        "license": metadata.get("general.license"),
        "sha256": Store.default().recorded(path).get("sha256"),
        "gguf_version": files[0].version,
    }


def _template(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    from laploop.models.detection import detect_dialect
    from laploop.models.template_faults import template_faults

    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        return {"chat_template": "none: the built-in Qwen3 template is used", "dialect": "qwen3", "warnings": []}
    dialect = detect_dialect(template, f"{name} {metadata.get('general.name', '')}")
    others = [key.rsplit(".", 1)[-1] for key in metadata if key.startswith("tokenizer.chat_template.")]
    return {
        "chat_template": f"{len(template):,} characters" + (f", and others: {', '.join(others)}" if others else ""),
        "dialect": dialect.name,
        "warnings": [f"the chat template {fault}" for fault in template_faults(template)],
    }


def _memory(header: Any, contexts: Sequence[int], kv_types: Sequence[str]) -> dict[str, int]:
    """ "4096 f16" → bytes that must be in memory for it; empty where the header does not tell the shape."""
    from laploop.engine import EngineConfig
    from laploop.engine.errors import BadModelFileError
    from laploop.engine.memory import context_length, estimate

    rows = {}
    for n_ctx in contexts:
        for kind in kv_types:
            config = EngineConfig(n_ctx=n_ctx, type_k=kind, type_v=kind)
            try:
                if context_length(header, config) == n_ctx:
                    rows[f"{n_ctx} {kind}"] = estimate(header, config).needed_bytes
            except BadModelFileError:
                return {}
    return rows


def _origin(path: Path) -> str:
    from laploop.models.files.other_programs import local_models
    from laploop.models.files.store import Store

    if path.is_relative_to(Store.default().root):
        return "laploop"
    real = path.resolve()
    return next((model.origin for model in local_models() if model.path.resolve() == real), "")
