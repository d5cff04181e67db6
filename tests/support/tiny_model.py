"""Makes a tiny qwen3 GGUF with random weights, Q8_0, in about a second: the real architecture, template and special
tokens, with a small byte-level vocabulary trained on the spot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np

N_LAYERS, N_EMBD, N_HEADS, N_KV_HEADS, HEAD_DIM, N_FF, N_CTX = 2, 64, 4, 2, 32, 128, 4096

SPECIAL = {  # text → gguf token type: 3 control, 4 user-defined, as in Qwen3's own files
    "<|endoftext|>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<tool_call>": 4, "</tool_call>": 4,
    "<tool_response>": 4, "</tool_response>": 4, "<think>": 4, "</think>": 4,
}  # fmt: skip

CORPUS = (
    'a call is {"name": "get_weather", "arguments": {"city": "Rome", "days": 3, "unit": "celsius"}} and the answer is '
    'that it is sunny. {"name": "read_file", "arguments": {"path": "notes.txt", "start_line": 1}} the quick brown fox '
    "jumps over the lazy dog and then the other one. 今天北京天气很好，上海有雨。你好，世界。现在几点了？ "
    '{"name": "get_time", "arguments": {}} true false null 2024-05-06 12:30 [1, 2, 3] '
) * 4


def _byte_chars() -> list[str]:
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


def train_merges(n_merges: int) -> list[tuple[str, str]]:
    """Plain byte-pair encoding over the corpus' words (a space belongs to the word behind it)."""
    chars = _byte_chars()
    words: Counter[tuple[str, ...]] = Counter()
    for i, word in enumerate(CORPUS.split(" ")):
        words[tuple(chars[b] for b in ((" " if i else "") + word).encode())] += 1
    merges = []
    for _ in range(n_merges):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, n in words.items():
            for pair in pairwise(word):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, n in words.items():
            out: list[str] = []
            for part in word:
                if out and (out[-1], part) == best:
                    out[-1] += part
                else:
                    out.append(part)
            merged[tuple(out)] += n
        words = merged
    return merges


_WORDS = ("▁▁", "▁a", "▁the", "▁is", "er", "the", "ing", "ä", "京", "北京", "▁北京", "ty", "ity", "city")


def sentencepiece_tokens() -> tuple[list[str], list[int]]:
    """Names and types as SentencePiece's models have them: U+2581 for a space, bytes of their own, marks."""
    pieces = ["▁", *_WORDS, *map(chr, range(33, 127))]
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        *pieces,
        "<tool_call>",
        "\n\n",
        "<unused1>",
    ]
    return tokens, [2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4, 4, 5]


def make_tiny_model(
    path: Path,
    template: str | None,
    *,
    seed: int = 0,
    n_merges: int = 300,
    n_layers: int = N_LAYERS,
    n_ctx: int = N_CTX,
    odd_tokens: Sequence[str] = (),
    sentencepiece: bool = False,
    more_marks: Sequence[str] = (),
) -> Path:
    """Write the model to `path`; `template` is its chat template, None for a file without one.

    `odd_tokens` are text tokens that are not written in GPT-2's letters for bytes. `sentencepiece` gives it another
    tokenizer, that of Llama 2. `more_marks` are control tokens beside Qwen's.
    """
    merges = train_merges(n_merges)
    tokens = [*_byte_chars(), *(a + b for a, b in merges), *SPECIAL, *odd_tokens, *more_marks]
    types = [1] * (256 + len(merges)) + [*SPECIAL.values(), *[1] * len(odd_tokens), *[3] * len(more_marks)]
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny random qwen3")
    writer.add_block_count(n_layers)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    if sentencepiece:
        tokens, types = sentencepiece_tokens()
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges([f"{a} {b}" for a, b in merges])
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_pad_token_id(tokens.index("<|endoftext|>"))
        writer.add_add_bos_token(False)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if template is not None:
        writer.add_chat_template(template)

    rng = np.random.default_rng(seed)

    def tensor(name: str, *shape: int) -> None:
        values = rng.normal(0, 0.6 / np.sqrt(shape[-1]), shape).astype(np.float32)
        quantised = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def ones(name: str, n: int) -> None:
        writer.add_tensor(name, np.ones(n, dtype=np.float32))

    tensor("token_embd.weight", len(tokens), N_EMBD)
    tensor("output.weight", len(tokens), N_EMBD)
    ones("output_norm.weight", N_EMBD)
    for i in range(n_layers):
        block = f"blk.{i}."
        ones(block + "attn_norm.weight", N_EMBD)
        ones(block + "ffn_norm.weight", N_EMBD)
        ones(block + "attn_q_norm.weight", HEAD_DIM)
        ones(block + "attn_k_norm.weight", HEAD_DIM)
        tensor(block + "attn_q.weight", N_HEADS * HEAD_DIM, N_EMBD)
        tensor(block + "attn_k.weight", N_KV_HEADS * HEAD_DIM, N_EMBD)
        tensor(block + "attn_v.weight", N_KV_HEADS * HEAD_DIM, N_EMBD)
        tensor(block + "attn_output.weight", N_EMBD, N_HEADS * HEAD_DIM)
        tensor(block + "ffn_gate.weight", N_FF, N_EMBD)
        tensor(block + "ffn_up.weight", N_FF, N_EMBD)
        tensor(block + "ffn_down.weight", N_EMBD, N_FF)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


if __name__ == "__main__":
    import sys

    from laploop.models.template import builtin_template

    print(json.dumps({"path": str(make_tiny_model(Path(sys.argv[1]), builtin_template()))}))
