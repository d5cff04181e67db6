"""read_url may not become a way into the local network: addresses, spellings, redirects, rebinding."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from laploop.tools import WebConfig, WebError, builtin_tools
from laploop.tools.address_guard import check_url, is_public
from laploop.tools.web import fetch_guarded

PUBLIC = "93.184.216.34"


def to_public(host: str, port: int) -> Sequence[str]:
    return [PUBLIC]


REFUSED = [
    "http://127.0.0.1/", "http://127.0.0.2:8080/x", "http://localhost/", "http://LOCALHOST./",
    "http://[::1]/",
    "http://[::]/", "http://0.0.0.0/", "http://0/", "http://10.0.0.1/", "http://172.16.5.4/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[fd00:ec2::254]/",
    "http://[fc00::1]/",
    "http://100.64.0.1/", "http://100.100.100.200/", "http://168.63.129.16/", "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/", "http://239.255.255.250/", "http://[ff02::1]/", "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/", "http://[2001:db8::1]/", "http://[fec0::1]/", "http://[100::1]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[2002:7f00:1::]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::10.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[2001:0:7f00:1::]/", "http://[fe80::1%25eth0]/",
    "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.1/", "http://127.0.1/", "http://127.0.0.1./", "http://1/", "http://1.2.3.0x4/",
    "http://256.1.1.1/",
    "http://１２７.０.０.１/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/",
    "http://user@example.com/", "http://user:pass@example.com/", "http://@example.com/",
    "http://127.0.0.1@example.com/",
    "http://example.com\\@127.0.0.1/", "http://example.com\t/", "http://exa mple.com/",
    " http://example.com/",
    "http://example.com/\r\nHost: 127.0.0.1", "http://exam\u200bple.com/",
    "file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "javascript:alert(1)",
    "data:text/html,x",
    "unix:///var/run/docker.sock", "//example.com/", "example.com", "", "http://", "http:///x", "http://?x",
    "http://example.com:99999/", "http://example.com:0/", "http://[2001:20::1]/", "http://example.com:port/",
    "http://[::1/", "HTTP://127.0.0.1/",
]  # fmt: skip


def system_like(host: str, port: int) -> Sequence[str]:
    """Answer as an operating system would for localhost; everything else is public, so that only the guard
    refuses."""
    return ["127.0.0.1"] if host == "localhost" else [PUBLIC]


@pytest.mark.parametrize("url", REFUSED)
def test_refused(url: str) -> None:
    with pytest.raises(WebError):
        check_url(url, (), system_like)


@pytest.mark.parametrize("url", REFUSED[:60:7])
def test_refused_without_a_connection_through_the_tool(url: str) -> None:
    read_url = next(item for item in builtin_tools(web=WebConfig()) if item.name == "read_url")
    result = read_url.invoke({"url": url})
    assert result.is_error and "refused" in result.content and "\n" not in result.content


@pytest.mark.parametrize(
    "url",
    ["https://example.com/", "http://example.com:8080/a?b=c#d", "https://中文.example/路径", "http://8.8.8.8/",
     "http://[2606:4700:4700::1111]/", "HTTPS://EXAMPLE.com", "http://[::ffff:8.8.8.8]/",
     "http://a_b.example.com/",
     "http://1e100.net/", "http://0x.example.com/"],
)  # fmt: skip
def test_public_addresses_pass(url: str) -> None:
    assert check_url(url, (), to_public).addresses


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "::1", "fe80::1%eth0", "169.254.169.254", "nonsense", "::ffff:10.0.0.1"]
)
def test_one_private_answer_among_public_ones_refuses_the_host(address: str) -> None:
    with pytest.raises(WebError):
        check_url("http://example.com/", (), lambda host, port: [PUBLIC, address])


def test_no_private_network_of_the_registries_is_public() -> None:
    networks = (
        "10.0.0.0/8 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 192.0.0.0/24 "
        "224.0.0.0/4 240.0.0.0/4 0.0.0.0/8 fc00::/7 fe80::/10 ff00::/8 ::/96 2001::/23 2002:a00::/24 "
        "2002:7f00::/24"
    )
    for network in networks.split():
        parsed = ipaddress.ip_network(network)
        for address in (parsed[0], parsed[1], parsed[parsed.num_addresses // 2], parsed[-1]):
            assert not is_public(address), address


def test_allow_list_is_for_that_host_and_port_only() -> None:
    allowed = ("127.0.0.1:8000", "wiki.local", "[::1]:9000")
    for url in ("http://127.0.0.1:8000/x", "http://wiki.local:1234/", "http://[::1]:9000/"):
        check_url(url, allowed, lambda host, port: ["10.0.0.9"])
    for url in ("http://127.0.0.1:8001/", "http://127.0.0.1/", "http://2130706433:8000/", "http://[::1]/", "http://a@wiki.local/",
                "http://x.wiki.local/", "http://127.0.0.2:8000/", "http://[::ffff:127.0.0.1]:8000/",
                "ftp://wiki.local/"):  # fmt: skip
        with pytest.raises(WebError):
            check_url(url, allowed, lambda host, port: ["10.0.0.9"])


class _Server(ThreadingHTTPServer):
    hits: list[tuple[str, str]]


@contextmanager
def local_server(location: str = "") -> Iterator[_Server]:
    """A real server; `/go` redirects to `location`, `/loop` to itself, everything else answers OK."""

    class Handler(BaseHTTPRequestHandler):
        server: _Server

        def do_GET(self) -> None:
            self.server.hits.append((self.path, self.headers["Host"]))
            target = {"/go": location, "/loop": "/loop"}.get(self.path, "")
            self.send_response(302 if target else 200)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"OK")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    server.hits = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/", "http://localhost:{port}/x", "//127.0.0.2/", "http://2130706433:{port}/",
     "file:///etc/passwd",     "http://user:pw@127.0.0.1:{port}/", "http://[::1]:{port}/", "http://10.0.0.1/",
     "gopher://127.0.0.1:{port}/", "http://[bad/"],
)  # fmt: skip
def test_redirects_are_checked_like_first_addresses(location: str) -> None:
    with local_server() as other, local_server(location.format(port=other.server_port)) as first:
        config = WebConfig(allow_hosts=(f"127.0.0.1:{first.server_port}",))
        with pytest.raises(WebError):
            fetch_guarded(f"http://127.0.0.1:{first.server_port}/go", config)
        assert [path for path, _ in first.hits] == ["/go"] and other.hits == []


def test_relative_redirects_work_and_loops_end() -> None:
    with local_server("/there?x=1") as server:
        config = WebConfig(allow_hosts=(f"127.0.0.1:{server.server_port}",))
        base = f"http://127.0.0.1:{server.server_port}"
        page = fetch_guarded(f"{base}/go", config)
        assert (page.url, page.body) == (f"{base}/there?x=1", b"OK")
        with pytest.raises(WebError, match="more than 5 redirects"):
            fetch_guarded(f"{base}/loop", config)
        assert [path for path, _ in server.hits].count("/loop") == 6


def test_rebinding_second_answer_is_never_asked_for() -> None:
    """The resolver says "public" first and "loopback" afterwards; the connection must go to what was
    checked."""
    answers = [[PUBLIC], ["127.0.0.1"]]
    asked: list[str] = []
    sent: list[httpx.Request] = []

    def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[min(len(asked), 2) - 1]

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"fine"), headers={"content-type": "text/plain"})

    page = fetch_guarded(
        "https://rebind.example/p?q=1", WebConfig(), resolver=resolver, transport=httpx.MockTransport(answer)
    )
    assert page.url == "https://rebind.example/p?q=1" and page.body == b"fine"
    assert asked == ["rebind.example"]
    assert str(sent[0].url) == f"https://{PUBLIC}/p?q=1"
    assert sent[0].headers["host"] == "rebind.example"
    assert sent[0].extensions["sni_hostname"] == "rebind.example"


def test_rebinding_between_redirects_is_refused() -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return httpx.Response(302, headers={"location": "/again"})

    with pytest.raises(WebError, match="refused"):
        fetch_guarded(
            "http://rebind.example/",
            WebConfig(),
            resolver=lambda host, port: next(answers),
            transport=httpx.MockTransport(answer),
        )
    assert sent == [f"http://{PUBLIC}/"]


def test_pinned_connection_keeps_the_host_header_over_real_http() -> None:
    with local_server() as server:
        host = f"pages.example:{server.server_port}"
        page = fetch_guarded(
            f"http://{host}/a", WebConfig(allow_hosts=(host,)), resolver=lambda name, port: ["127.0.0.1"]
        )
        assert page.body == b"OK" and server.hits == [("/a", host)]


def test_next_checked_address_is_tried_when_one_does_not_answer() -> None:
    with local_server() as server:
        host = f"pages.example:{server.server_port}"
        page = fetch_guarded(
            f"http://{host}/a",
            WebConfig(allow_hosts=(host,)),
            resolver=lambda name, port: ["127.0.0.9", "127.0.0.1"],
        )
        assert page.body == b"OK"


def test_cookies_do_not_travel_between_hops() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        if len(seen) == 1:
            return httpx.Response(302, headers={"location": "http://other.example/", "set-cookie": "a=b"})
        return httpx.Response(200, stream=httpx.ByteStream(b"x"))

    fetch_guarded("http://one.example/", WebConfig(), resolver=to_public, transport=httpx.MockTransport(answer))
    assert seen == [None, None]


def test_guarded_reading_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_server() as proxy, local_server() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        address = f"127.0.0.1:{server.server_port}"
        assert fetch_guarded(f"http://{address}/", WebConfig(allow_hosts=(address,))).body == b"OK"
        assert proxy.hits == []
