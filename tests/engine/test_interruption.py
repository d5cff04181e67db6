"""Ctrl-C and `close` at any moment, in processes of their own: an error or an interrupt, never a crash or a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

HEAD = """
import random, signal, sys, threading, time
from laploop.engine import Engine, EngineConfig, EngineError, SamplingParams
signal.signal(signal.SIGINT, signal.default_int_handler)
path = sys.argv[1]
def config(**changes):
    exact = {"flash_attn": "on", "type_k": "bf16", "type_v": "bf16"}
    return EngineConfig(**{"n_ctx": 2048, "n_threads": 1, **exact, **changes})
def endless(engine):
    return SamplingParams(temperature=0, logit_bias=dict.fromkeys(engine.vocabulary.eog, -1e9))
def run(engine, prompt, n=20):
    return [t for step in engine.generate(prompt, endless(engine), None, n) for t in step.tokens]
"""


def child(program: str, *arguments: object, timeout_s: float = 120) -> str:
    """Run it; its time limit only ends a test that hangs."""
    code = HEAD + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_close_during_a_generation_ends_it_with_an_error(tiny_path: Path) -> None:
    out = child(
        """
        for i in range(12):
            engine = Engine.load(path, config(n_seq_max=3))
            said = []
            def reader(k):
                try:
                    while True:
                        run(engine, [k + 1] * 200, 400)
                except EngineError as error:
                    said.append(str(error))
            def tokenizer():
                try:
                    while True:
                        engine.tokenize("some text " * 50)
                except EngineError as error:
                    said.append(str(error))
            threads = [threading.Thread(target=reader, args=(k,)) for k in range(4)]
            threads.append(threading.Thread(target=tokenizer))
            for t in threads: t.start()
            time.sleep(0.01 * i)
            engine.close()
            for t in threads: t.join()
            assert len(said) == 5 and all("closed" in s for s in said), said
        print("well")
        """,
        tiny_path,
    )
    assert out == "well\n"


def test_leaving_at_once_after_loading_is_clean(tiny_path: Path) -> None:
    """Regression: llguidance's tables were built by a daemon thread, under which the model was freed at exit."""
    for how in ("engine.close()", "del engine", "pass", "raise SystemExit(0)"):
        assert child(f"engine = Engine.load(path, config())\n{how}", tiny_path) == ""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process alone")
def test_ctrl_c_in_a_long_prefill_ends_it_and_the_engine_goes_on(tmp_path: Path) -> None:
    """The prompt takes many seconds in one batch; it ends within a fraction of that."""
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path / "long.gguf", None, n_layers=24, n_ctx=16384)
    code = HEAD + textwrap.dedent(
        """
        engine = Engine.load(path, config(n_ctx=16384, n_batch=16384, n_ubatch=512))
        prompt = [random.Random(0).randrange(200) for _ in range(16000)]
        before = run(engine, prompt[:50])
        print("ready", flush=True)
        try:
            run(engine, prompt)
            print("not interrupted")
        except KeyboardInterrupt:
            assert run(engine, prompt[:50]) == before
            assert all(len(s.cached) < 100 for s in engine._slots)
            print("interrupted")
        """
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        time.sleep(0.3)  # into the prefill
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert out == "interrupted\n" and process.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process alone")
def test_ctrl_c_at_any_moment_leaves_the_engine_as_it_was(tiny_path: Path) -> None:
    """Regression: an interrupt between decoding and the note of it left cells in the cache that nobody knew of."""
    out = child(
        """
        import os
        engine = Engine.load(path, config(n_seq_max=2))
        prompts = [[k + 1] * 40 + [k + 70] for k in range(5)]
        expected = [run(engine, p) for p in prompts]
        rng = random.Random(1)
        others = []
        stop = threading.Event()
        def neighbour():  # its generations go on through the interrupts of the main thread
            while not stop.is_set():
                others.append(run(engine, prompts[0]) == expected[0])
        thread = threading.Thread(target=neighbour)
        thread.start()
        n_interrupts = 0
        for _ in range(60):
            delay, hit = rng.random() * 0.02, []
            def shoot():  # again and again: Python swallows an interrupt that arrives inside a destructor
                time.sleep(delay)
                while not hit:
                    os.kill(os.getpid(), signal.SIGINT)
                    for _ in range(100):
                        if hit:
                            return
                        time.sleep(0.01)
            shooter = threading.Thread(target=shoot)
            try:
                shooter.start()
                while True:
                    for p in prompts:
                        run(engine, p, 20)
            except KeyboardInterrupt:
                hit.append(True)
                n_interrupts += 1
            while shooter.is_alive():
                try:
                    time.sleep(0.01)
                except KeyboardInterrupt:
                    pass
            k = rng.randrange(5)
            assert run(engine, prompts[k]) == expected[k], k
        stop.set()
        thread.join()
        assert n_interrupts == 60 and others and all(others)
        print("well")
        """,
        tiny_path,
    )
    assert out == "well\n"
