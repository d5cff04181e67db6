"""The header reader: what it reads is what `gguf` wrote, and what is damaged has a name."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine.errors import BadModelFileError, EngineError
from laploop.engine.gguf import TensorInfo, check_head, kv_bytes, read_gguf, shard_paths
from laploop.engine.gguf_rules import broken_rules
from laploop.engine.gguf_types import TENSOR_TYPES

CASES = {
    case["id"]: case
    for area in ("engine", "download")
    for line in (Path(__file__).parents[1] / "data" / f"{area}.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}
TOKENS = ["<s>", "a", "żółw", "模型", "", " b"]


def write_model(path: Path, **extra: int) -> Path:
    """A small whole GGUF with every kind of value, two tensors (F32 and Q8_0)."""
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(32)
    writer.add_value_length(16)
    writer.add_token_list(TOKENS)
    writer.add_token_types([1, 2, 3, 1, 1, 1])
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0, 0.0, 0.0])
    writer.add_string("general.name", "tiny żółw")
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_float32("qwen3.rope.freq_base", 1e6)
    writer.add_uint64("big", 2**63 + 1)
    writer.add_int8("small", -5)
    writer.add_array("flags", [True, False])
    for key, number in extra.items():
        writer.add_uint16(key.replace("__", "."), number)
    writer.add_tensor("token_embd.weight", np.arange(6 * 64, dtype=np.float32).reshape(6, 64))
    q8 = gguf.quants.quantize(np.ones((64, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.ffn.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_reads_back_what_the_writer_wrote(model: Path) -> None:
    file = read_gguf(model)
    assert file.version == 3
    assert file.size_bytes == model.stat().st_size
    meta = file.metadata
    assert meta["general.architecture"] == "qwen3"
    assert meta["general.name"] == "tiny żółw"
    assert meta["tokenizer.ggml.tokens"] == [token.encode() for token in TOKENS]
    assert list(meta["tokenizer.ggml.token_type"]) == [1, 2, 3, 1, 1, 1]
    assert list(meta["tokenizer.ggml.scores"]) == [0.5, -1.0, 2.0, 0.0, 0.0, 0.0]
    assert meta["tokenizer.ggml.add_bos_token"] is False
    assert meta["qwen3.rope.freq_base"] == 1e6
    assert meta["big"] == 2**63 + 1
    assert meta["small"] == -5
    assert list(meta["flags"]) == [1, 0]


def test_tensors_point_at_their_bytes(model: Path) -> None:
    by_name = {tensor.name: tensor for tensor in read_gguf(model).tensors}
    embd, ffn = by_name["token_embd.weight"], by_name["blk.0.ffn.weight"]
    assert (embd.shape, embd.type, embd.size_bytes) == ((64, 6), "F32", 6 * 64 * 4)
    assert (ffn.shape, ffn.type, ffn.size_bytes) == ((64, 64), "Q8_0", 64 * 2 * 34)
    raw = model.read_bytes()[embd.offset_bytes :][: embd.size_bytes]
    assert np.array_equal(np.frombuffer(raw, "<f4"), np.arange(6 * 64, dtype=np.float32))


def test_type_table_is_that_of_the_gguf_package() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {number: tuple(kind) for number, kind in TENSOR_TYPES.items() if number in theirs} == theirs


def test_every_truncation_is_refused(model: Path, tmp_path: Path) -> None:
    """However short the download, it never counts as whole, and never raises anything but our own error."""
    whole = model.read_bytes()
    end = max(t.offset_bytes + (t.size_bytes or 0) for t in read_gguf(model).tensors)
    part = tmp_path / "part.gguf"
    for n_bytes in [*range(0, end, 13), end - 1]:
        part.write_bytes(whole[:n_bytes])
        with pytest.raises(BadModelFileError, match=r"incomplete|empty"):
            read_gguf(part)


def test_truncated_weights_name_both_sizes(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    end = max(t.offset_bytes + (t.size_bytes or 0) for t in read_gguf(model).tensors)
    part = tmp_path / "part.gguf"
    part.write_bytes(whole[: end - 100])
    with pytest.raises(BadModelFileError) as caught:
        read_gguf(part)
    assert f"{end:,}" in str(caught.value) and f"{end - 100:,}" in str(caught.value)


def test_damaged_bytes_raise_our_error_or_none(model: Path, tmp_path: Path) -> None:
    """Law: any header, however damaged, is read or refused with BadModelFileError; nothing else is raised."""
    whole = model.read_bytes()
    header_end = read_gguf(model).data_offset
    rng = random.Random(7)
    bad = tmp_path / "bad.gguf"
    refused = 0
    for _ in range(1500):
        data = bytearray(whole)
        at = rng.randrange(8, header_end)
        data[at : at + rng.choice([1, 1, 4, 8])] = rng.randbytes(rng.choice([1, 1, 4, 8]))
        bad.write_bytes(data)
        try:
            read_gguf(bad)
        except BadModelFileError:
            refused += 1
    assert refused > 100


@given(st.binary(max_size=300))
def test_any_bytes_after_the_magic_raise_our_error_or_none(tail: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.gguf")
        path.write_bytes(b"GGUF" + struct.pack("<I", 3) + tail)
        try:
            read_gguf(path)
        except BadModelFileError as error:
            assert "x.gguf" in str(error)


def _pair(key: str, kind: int, payload: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + payload


def _header(*pairs: bytes, n_tensors: int = 0, n_pairs: int | None = None, version: int = 3) -> bytes:
    n = len(pairs) if n_pairs is None else n_pairs
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n) + b"".join(pairs)


def _tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    head = struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
    return head + b"".join(struct.pack("<Q", d) for d in shape) + struct.pack("<IQ", kind, offset)


NESTED = struct.pack("<IQ", 9, 1) * 3 + struct.pack("<IQ", 4, 0)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "tensor count": (_header(n_tensors=2**62), "number of tensors"),
    "pair count": (_header(n_pairs=2**62), "metadata pairs"),
    "key length": (_header(struct.pack("<Q", 2**63)), "metadata key"),
    "string length": (_header(_pair("k", 8, struct.pack("<Q", 2**40))), "length of k"),
    "string array count": (_header(_pair("k", 9, struct.pack("<IQ", 8, 2**60))), "length of k"),
    "string array longer than file": (_header(_pair("k", 9, struct.pack("<IQ", 8, 3_000_000))), "incomplete"),
    "string in array": (_header(_pair("k", 9, struct.pack("<IQQ", 8, 1, 2**63))), "string 0 of 1"),
    "number array count": (_header(_pair("k", 9, struct.pack("<IQ", 4, 2**60))), "length of k"),
    "nesting": (_header(_pair("k", 9, NESTED)), "nests"),
    "value type": (_header(_pair("k", 99, b"")), "unknown value type 99"),
    "array type": (_header(_pair("k", 9, struct.pack("<IQ", 77, 1))), "unknown type 77"),
    "twice": (_header(_pair("k", 0, b"\1"), _pair("k", 0, b"\1")), "twice"),
    "alignment 0": (_header(_pair("general.alignment", 4, struct.pack("<I", 0))), "power of two"),
    "alignment 48": (_header(_pair("general.alignment", 4, struct.pack("<I", 48))), "power of two"),
    "alignment text": (_header(_pair("general.alignment", 8, struct.pack("<Q", 0))), "power of two"),
    "dimensions": (_header(n_tensors=1) + _tensor("t", (1,) * 9, 0, 0), "9 dimensions"),
    "shape": (_header(n_tensors=1) + _tensor("t", (2**40, 2**40), 0, 0), "impossible shape"),
    "row": (_header(n_tensors=1) + _tensor("t", (100,), 12, 0), "multiple of Q4_K's 256"),
    "offset": (_header(n_tensors=1) + _tensor("t", (32,), 0, 5), "alignment"),
    "offset far": (_header(n_tensors=1) + _tensor("t", (32,), 0, 2**60), "truncated"),
    "names": (_header(n_tensors=2) + _tensor("t", (0,), 0, 0) * 2 + bytes(64), "same name"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    data, says = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(BadModelFileError, match=says):
        read_gguf(path)


def test_tensor_type_newer_than_the_table_is_left_to_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(_header(n_tensors=1) + _tensor("t", (32,), 999, 0) + bytes(64))
    (tensor,) = read_gguf(path).tensors
    assert (tensor.type, tensor.size_bytes) == ("type 999", None)


NOT_GGUF: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "text": (b"hello, this is a note\n", "text file"),
    "json": (b'{"error": "not found"}', "text file"),
    "zip": (b"PK\x03\x04" + bytes(60), "ZIP"),
    "safetensors": (struct.pack("<Q", 60) + b'{"__metadata__"' + bytes(60), "safetensors"),
    "ggml": (b"tjgg" + bytes(60), "before GGUF"),
    "zeros": (bytes(4096), "zero bytes"),
    "magic": (b"\x01\x02GUF" + bytes(60), "instead of b'GGUF'"),
    "version 1": (_header(version=1), "GGUF version 1"),
    "version 9": (_header(version=9), "GGUF version 9"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "magic only": (b"GGUF\x03\0\0\0", "incomplete"),
}


@pytest.mark.parametrize("name", NOT_GGUF)
def test_other_files_are_named(name: str, tmp_path: Path) -> None:
    data, says = NOT_GGUF[name]
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    for read in (read_gguf, check_head):
        with pytest.raises(BadModelFileError, match=says):
            read(path)


def test_missing_file_and_folder_are_engine_errors(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(EngineError, match="is a folder"):
        read_gguf(tmp_path)


@pytest.mark.parametrize("case_id", ["C089", "C090"])
def test_case_not_a_model(case_id: str, tmp_path: Path) -> None:
    case = CASES[case_id]
    path = tmp_path / "model.gguf"
    path.write_text(case["input"]["local_file_text"], encoding="utf-8")
    with pytest.raises(BadModelFileError) as caught:
        read_gguf(path)
    expected = case["expected"]
    assert all(word in str(caught.value) for word in expected.get("error_mentions", []))
    one_of = expected.get("error_mentions_one_of")
    assert not one_of or any(word in str(caught.value) for word in one_of)
    if case_id == "C089":
        assert "1,834,426,016" in str(caught.value)


@pytest.mark.parametrize("case_id", ["C107"])
def test_case_kv_bytes(case_id: str) -> None:
    given_, expected = CASES[case_id]["input"], CASES[case_id]["expected"]
    metadata: dict[str, Any] = {
        "general.architecture": "qwen3",
        "qwen3.block_count": given_["n_layers"],
        "qwen3.embedding_length": 2048,
        "qwen3.attention.head_count": 16,
        "qwen3.attention.head_count_kv": given_["n_kv_heads"],
        "qwen3.attention.key_length": given_["head_dim"],
        "qwen3.attention.value_length": given_["head_dim"],
    }
    per_element = given_["bytes_per_element"]
    got = [kv_bytes(metadata, n_ctx, per_element, per_element) for n_ctx in given_["n_ctx"]]
    assert got == expected["kv_bytes"]


def test_kv_bytes_with_unequal_heads_and_quantised_cache(model: Path) -> None:
    metadata = read_gguf(model).metadata  # 2 layers, 2 KV heads, key 32, value 16
    assert kv_bytes(metadata, 100) == 2 * 2 * (32 + 16) * 2 * 100
    assert kv_bytes(metadata, 100, 34 / 32, 18 / 32) == 2 * 2 * (34 + 9) * 100


def test_kv_bytes_without_a_shape_is_a_named_error() -> None:
    with pytest.raises(BadModelFileError, match="block_count"):
        kv_bytes({"general.architecture": "qwen3"}, 10)


@pytest.mark.parametrize("case_id", ["C116"])
def test_case_non_ascii_path(case_id: str, tmp_path: Path) -> None:
    path = tmp_path / CASES[case_id]["input"]["path"].removeprefix("/tmp/")
    path.parent.mkdir(parents=True)
    write_model(path)
    assert read_gguf(path).metadata["general.architecture"] == "qwen3"
    assert read_gguf(str(path)).path == path


@pytest.mark.parametrize("case_id", ["C100"])
def test_case_split_model(case_id: str, tmp_path: Path) -> None:
    case = CASES[case_id]
    names = case["input"]["repo_files"]
    for variant in case["input"]["local_variants"]:
        folder = tmp_path / "-".join(variant)
        folder.mkdir()
        for number in variant:
            (folder / names[int(number) - 1]).touch()
        if len(variant) == 3:
            for name in names:  # from any part
                parts = shard_paths(folder / name)
                assert [part.name for part in parts] == names
                assert parts[0].name == case["expected"]["load_path"]
        else:
            with pytest.raises(BadModelFileError) as caught:
                shard_paths(folder / names[0])
            assert all(word in str(caught.value) for word in case["expected"]["error_mentions"])


def test_a_name_without_numbers_is_one_file(tmp_path: Path) -> None:
    assert shard_paths(tmp_path / "m.gguf") == (tmp_path / "m.gguf",)


def test_impossible_part_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModelFileError, match="part 4 of 3"):
        shard_paths(tmp_path / "m-00004-of-00003.gguf")


def test_renamed_part_is_refused(tmp_path: Path) -> None:
    """llama.cpp finds the siblings by name: a part under another name loads half a model or none."""
    good = write_model(tmp_path / "m-00002-of-00003.gguf", split__no=1, split__count=3)
    assert read_gguf(good).metadata["split.count"] == 3
    renamed = good.rename(tmp_path / "m.gguf")
    with pytest.raises(BadModelFileError, match=r"-00002-of-00003\.gguf"):
        read_gguf(renamed)


SOUND = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 2,
    "qwen3.attention.head_count": 4,
    "qwen3.attention.head_count_kv": 2,
    "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
    "tokenizer.ggml.tokens": [b"a", b"b"],
    "tokenizer.ggml.token_type": array("i", [1, 1]),
    "tokenizer.ggml.merges": [b"a b"],
}
# What llama.cpp ends the process for (scripts/benchmarks/gguf_fuzz.py, or its own assertions).
DEADLY: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"qwen3.block_count": 0}, "block_count is 0"),
    "too many layers": ({"qwen3.block_count": 513}, "block_count is 513"),
    "heads": ({"qwen3.attention.head_count_kv": 3}, "no divisor"),
    "negative epsilon": ({"qwen3.attention.layer_norm_rms_epsilon": -1.0}, "epsilon is -1.0"),
    "no number": ({"qwen3.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is nan"),
    "experts": ({"qwen3.expert_count": 2000, "qwen3.expert_used_count": 8}, "of 2,000 experts"),
    "no expert used": ({"qwen3.expert_count": 8}, "is 0 of 8 experts"),
    "experts used": ({"qwen3.expert_used_count": 8}, "is 8 of 0 experts"),
    "tokens twice": ({"tokenizer.ggml.tokens": [b"a", b"a"]}, "1 tokens twice"),
    "tokens twice to a zero byte": ({"tokenizer.ggml.tokens": [b"a\0b", b"a\0c", b"a"]}, "2 tokens twice"),
    "tokens": ({"tokenizer.ggml.tokens": array("i", [1])}, "no list of strings"),
    "token types": ({"tokenizer.ggml.token_type": array("b", [1, 1])}, "no array of 32-bit"),
    "scores": ({"tokenizer.ggml.scores": [b"1"]}, "no array of 32-bit"),
    "merges": ({"tokenizer.ggml.merges": array("i", [1])}, "merges is no list"),
}


@pytest.mark.parametrize("name", DEADLY)
def test_what_llama_cpp_would_die_of_is_refused(name: str) -> None:
    changes, says = DEADLY[name]
    assert list(broken_rules(SOUND, ())) == []
    assert list(broken_rules({**SOUND, "tokenizer.ggml.tokens": [b"", b"\0", b""]}, ())) == [], (
        "they get names of their own"
    )
    (broken,) = broken_rules({**SOUND, **changes}, ())
    assert says in broken


@pytest.mark.parametrize(("name", "kind"), [("blk.0.ffn.weight", "I32"), ("q.bias", "F64"), ("out_norm.weight", "F16")])
def test_types_that_cannot_be_computed_with_are_refused(name: str, kind: str) -> None:
    (broken,) = broken_rules(SOUND, [TensorInfo(name, (32,), kind, 0, 64)])
    assert name in broken and kind in broken
    assert list(broken_rules(SOUND, [TensorInfo("blk.0.ffn.weight", (32, 32), "Q8_0", 0, 64)])) == []


def test_a_header_that_llama_cpp_would_die_of_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deadly.gguf"
    arch = _pair("general.architecture", 8, struct.pack("<Q", 5) + b"qwen3")
    path.write_bytes(_header(arch, _pair("qwen3.block_count", 4, struct.pack("<I", 0))))
    with pytest.raises(BadModelFileError, match=r"deadly\.gguf is not a usable GGUF: qwen3\.block_count is 0"):
        read_gguf(path)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and time are POSIX's")
def test_mutated_heads_neither_hang_nor_crash(tiny_path: Path) -> None:
    """A sample of the benchmark that gives 100,000 to the reader and 500 to llama.cpp."""
    script = Path(__file__).parents[2] / "scripts" / "benchmarks" / "gguf_fuzz.py"
    command = [sys.executable, str(script), "-m", str(tiny_path), "--heads", "400", "--loads", "4", "--seed", "77"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["read"]["taken"] > 50 and told["read"]["refused"] > 50
