"""Redirects and names that lead inward: real servers on loopback, a resolver of our own. What counts is not the error
alone but that the inner server is never asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from laploop.tools import WebConfig, WebError
from laploop.tools.address_guard import check_url
from laploop.tools.web import fetch_guarded

PUBLIC = "93.184.216.34"
INWARD = {  # names that public DNS can be made to give any answer for
    "loop.example": ["127.0.0.1"], "loop6.example": ["::1"], "private.example": ["10.0.0.8"],
    "lan.example": ["192.168.1.1"],
    "meta.example": ["169.254.169.254"], "mapped.example": ["::ffff:127.0.0.1"], "nat64.example": ["64:ff9b::7f00:1"],
    "six4.example": ["2002:7f00:1::"], "mixed.example": [PUBLIC, "127.0.0.1"], "mixed2.example": ["127.0.0.1", PUBLIC],
    "zero.example": ["0.0.0.0"], "cgnat.example": ["100.64.1.1"], "scoped.example": ["fe80::1%1"], "none.example": [],
    "localhost.example": ["127.0.0.2"], "broadcast.example": ["255.255.255.255"], "multi.example": ["224.0.0.251"],
    "azure.example": ["168.63.129.16"], "ula.example": ["fd00::1"], "junk.example": ["not an address"],
    "teredo.example": ["2001:0:7f00:1::1"], "doc.example": ["192.0.2.7"], "bench.example": ["198.19.0.1"],
    "metadata.google.internal": ["169.254.169.254"], "kubernetes.default.svc": ["10.96.0.1"],
}  # fmt: skip


def resolver(host: str, port: int) -> Sequence[str]:
    if host == "start.example":
        return ["127.0.0.1"]
    if host == "gone.example":
        raise socket.gaierror("no such name")
    return INWARD.get(host, [PUBLIC])


class Server(ThreadingHTTPServer):
    """Answers every path with `status` and `headers`, and keeps what was asked."""

    status, headers, body = 200, {"Content-Type": "text/plain"}, b"INNER"
    asked: list[str]


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The outer one, which start.example is, and the inner one, which nobody may reach."""

    class Handler(BaseHTTPRequestHandler):
        server: Server

        def do_GET(self) -> None:
            self.server.asked.append(self.path)
            self.send_response(self.server.status)
            for name, value in {"Content-Length": str(len(self.server.body)), **self.server.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(self.server.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    made = []
    for _ in range(2):
        server = Server(("127.0.0.1", 0), Handler)
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        made.append((server, thread))
    yield made[0][0], made[1][0]
    for server, thread in made:
        server.shutdown()
        server.server_close()
        thread.join()


def go(servers: tuple[Server, Server], location: str, status: int = 302) -> None:
    """Read the outer server, which redirects to `location`; {port} in it is the inner one's."""
    outer, inner = servers
    outer.status, outer.headers = status, {"Location": location.format(port=inner.server_port)}
    config = WebConfig(allow_hosts=(f"start.example:{outer.server_port}",), timeout_s=2.0)
    try:
        with pytest.raises(WebError) as caught:
            fetch_guarded(f"http://start.example:{outer.server_port}/", config, resolver=resolver)
        assert "\n" not in str(caught.value)
    finally:
        assert outer.asked and inner.asked == []


@pytest.mark.parametrize("host", INWARD)
def test_a_name_that_leads_inward_is_refused(host: str) -> None:
    with pytest.raises(WebError):
        check_url(f"http://{host}/", (), resolver)


@pytest.mark.parametrize("host", INWARD)
def test_a_redirect_to_such_a_name_is_not_followed(servers: tuple[Server, Server], host: str) -> None:
    go(servers, f"http://{host}:{{port}}/secret")


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "//loop.example:{port}", "http:\\\\127.0.0.1:{port}\\",
        "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/", "http://127.1:{port}/", "http://[::ffff:7f00:1]:{port}/",
        "http://start.example@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@start.example/", "http://LOOP.EXAMPLE.:{port}/",
        "http://127.0.0.1\u3002:{port}/", "http://①②⑦.0.0.1:{port}/", "https://127.0.0.1:{port}/",
        "ftp://127.0.0.1:{port}/", "file:///etc/passwd", "dict://127.0.0.1:{port}/x", "ldap://127.0.0.1:{port}/",
        "jar:http://127.0.0.1:{port}!/", "javascript:alert(1)", "data:text/plain,INNER", "http://127.0.0.1:{port}/%0d%0aX",
        "http://start.example:{port}/", "http://gone.example/", "http://127.0.0.1:{port}\t/", "http://", "http://[/",
        "http://127.0.0.1:99999/", "http:///127.0.0.1:{port}/", "http://127.0.0.1%2f:{port}/", "\x01http://127.0.0.1:{port}/",
    ],
)  # fmt: skip
def test_redirects_inward_are_not_followed(servers: tuple[Server, Server], location: str) -> None:
    """Of these, start.example on another port: the exemption is for host and port together."""
    if not location.isascii():
        location = location.encode("utf-8").decode("latin-1")  # as http.server writes it, byte for byte
    go(servers, location)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_every_kind_of_redirect_is_checked(servers: tuple[Server, Server], status: int) -> None:
    go(servers, "http://loop.example:{port}/", status)


@pytest.mark.parametrize("status", [300, 304, 305, 306])
def test_what_is_not_a_redirect_is_not_followed(servers: tuple[Server, Server], status: int) -> None:
    outer, inner = servers
    outer.body = b""
    go(servers, "http://loop.example:{port}/", status)
    assert (len(outer.asked), inner.asked) == (1, [])


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Refresh": "0; url=http://127.0.0.1:{port}/"}, b"wait"),
        ({"Content-Location": "http://127.0.0.1:{port}/"}, b"x"),
        ({"Link": "<http://127.0.0.1:{port}/>; rel=canonical"}, b"x"),
        ({}, b"<html><meta http-equiv=refresh content='0;url=http://127.0.0.1:{port}/'><p>Moved</p></html>"),
        ({}, b"<html><base href=http://127.0.0.1:{port}/><img src=x><iframe src=y></iframe><p>Moved</p></html>"),
        ({}, b"<!DOCTYPE x [<!ENTITY a SYSTEM 'http://127.0.0.1:{port}/'>]><html><p>Moved &a;</p></html>"),
        ({}, b"<?xml-stylesheet href='http://127.0.0.1:{port}/'?><html><link rel=stylesheet href=z><p>Moved</p>"),
    ],
)  # fmt: skip
def test_a_page_makes_no_further_request(servers: tuple[Server, Server], headers: dict[str, str], body: bytes) -> None:
    from laploop.tools.page_text import read_page

    outer, inner = servers
    port = str(inner.server_port)
    outer.headers = {"Content-Type": "text/html", **{k: v.replace("{port}", port) for k, v in headers.items()}}
    outer.body = body.replace(b"{port}", port.encode())
    config = WebConfig(allow_hosts=(f"start.example:{outer.server_port}",))
    page = fetch_guarded(f"http://start.example:{outer.server_port}/", config, resolver=resolver)
    assert read_page(page.body, page.content_type, page.url).text
    assert (len(outer.asked), inner.asked) == (1, [])


def test_rebinding_over_real_sockets_connects_to_what_was_checked(servers: tuple[Server, Server]) -> None:
    """Each question to the resolver gives another answer, as a rebinding name server does; one answer is used."""
    outer, inner = servers
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.3"]])
    asked: list[str] = []

    def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    host = f"rebind.example:{outer.server_port}"
    page = fetch_guarded(f"http://{host}/", WebConfig(allow_hosts=(host,)), resolver=rebinding)
    assert page.body == b"INNER" and asked == ["rebind.example"] and outer.asked == ["/"] and inner.asked == []


@pytest.mark.parametrize(
    ("denied", "url"),
    [
        ("bad.example", "http://bad.example/"), ("bad.example", "https://BAD.example.:8443/x"),
        (".bad.example", "http://a.b.bad.example/"), (".bad.example", "http://bad.example/"),
        ("bad.example:8080", "http://bad.example:8080/"), (" Bad.Example ", "http://bad.example/"),
        ("93.184.216.34", "http://93.184.216.34/"), ("[2606:4700:4700::1111]", "http://[2606:4700:4700::1111]/"),
        ("bücher.example", "http://xn--bcher-kva.example/"), (".", "http://any.example/"),
    ],
)  # fmt: skip
def test_denied_hosts_are_refused_though_public(denied: str, url: str) -> None:
    with pytest.raises(WebError, match="deny list"):
        check_url(url, (), resolver, deny_hosts=(denied,))


@pytest.mark.parametrize("url", ["http://good.example/", "http://notbad.example/", "http://bad.example.org/"])
def test_a_deny_list_is_for_its_hosts_only(url: str) -> None:
    assert check_url(url, (), resolver, deny_hosts=("bad.example", ".bad.example", "good.example:81")).addresses


def test_denying_beats_allowing_and_holds_for_redirects(servers: tuple[Server, Server]) -> None:
    outer, inner = servers
    outer.status, outer.headers = 302, {"Location": f"http://inner.example:{inner.server_port}/"}
    config = WebConfig(
        allow_hosts=(f"start.example:{outer.server_port}", f"inner.example:{inner.server_port}"),
        deny_hosts=("inner.example",),
    )
    with pytest.raises(WebError, match="deny list"):
        fetch_guarded(f"http://start.example:{outer.server_port}/", config, resolver=resolver)
    assert inner.asked == []
