"""HTTP for the web tools: one GET with limits on time and size. It knows no page formats.

`fetch` is for services that the user has configured (weather, news): it honours the environment's proxies,
except for loopback addresses. `fetch_guarded` is for addresses that a model or a page has chosen: see
`address_guard` for what it refuses. It resolves a host once, checks every address and connects to a checked
one, with `Host` and TLS server name kept, so that a second DNS answer cannot lead elsewhere; every redirect
goes through the same checks. It uses no proxy on purpose: a proxy resolves names itself, and the guard would
not see where the request goes.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import getproxies

from .address_guard import Resolver, Target, check_url, system_resolver
from .errors import WebError

if TYPE_CHECKING:
    import httpx

DEFAULT_WEATHER_URL = "https://wttr.in"
# Google News' feed will not do: its links are pages that redirect by script, which read_url cannot follow. Bing's carry
# the article's address (unwrapped in builtin/news.py).
DEFAULT_NEWS_URL = "https://www.bing.com/news/search?q={topic}&format=rss"
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; laploop)",
    "Accept-Encoding": "gzip",  # what _decoded can undo within max_bytes
    "Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8",
}


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Where the web tools go and how far.

    Args:
        weather_url: base of a wttr.in-like service; `{weather_url}/{city}?format=j1` is asked.
        news_url: an RSS or Atom search; `{topic}` in it is replaced by the topic.
        allow_hosts: `host` or `host:port` that read_url may read though it is private or loopback.
        deny_hosts: `host`, `host:port` or `.domain` (it and all below it) that read_url may not read.
        cache_age_s: seconds for which read_url gives a page again without fetching it; 0 for never.
        timeout_s: seconds for one fetch, redirects included.
        max_bytes: most bytes of one page, after decompression.

    Raises:
        WebError: a value that cannot work; names the field.
    """

    weather_url: str = DEFAULT_WEATHER_URL
    news_url: str = DEFAULT_NEWS_URL
    allow_hosts: tuple[str, ...] = ()
    timeout_s: float = 10.0
    max_bytes: int = 2_000_000
    deny_hosts: tuple[str, ...] = ()
    cache_age_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("weather_url", "news_url"):
            if not getattr(self, name).startswith(("http://", "https://")):
                raise WebError(f"{name} is {getattr(self, name)!r}; it must start with http:// or https://")
        if "{topic}" not in self.news_url:
            raise WebError(f"news_url is {self.news_url!r}; it must contain {{topic}}, as in {DEFAULT_NEWS_URL}")
        if not self.timeout_s > 0 or self.max_bytes < 1:
            raise WebError("timeout_s and max_bytes must be above 0")
        if not self.cache_age_s >= 0:
            raise WebError(f"cache_age_s is {self.cache_age_s}; give seconds, or 0 to keep no page")
        object.__setattr__(self, "allow_hosts", tuple(self.allow_hosts))
        object.__setattr__(self, "deny_hosts", tuple(self.deny_hosts))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> WebConfig:
        """Return the configuration of LAPLOOP_WEATHER_URL, LAPLOOP_NEWS_URL, LAPLOOP_ALLOW_HOSTS and LAPLOOP_DENY_HOSTS
        (comma-separated)."""
        environ = os.environ if environ is None else environ

        def hosts(name: str) -> tuple[str, ...]:
            return tuple(host.strip() for host in environ.get(name, "").split(",") if host.strip())

        return cls(
            weather_url=environ.get("LAPLOOP_WEATHER_URL") or DEFAULT_WEATHER_URL,
            news_url=environ.get("LAPLOOP_NEWS_URL") or DEFAULT_NEWS_URL,
            allow_hosts=hosts("LAPLOOP_ALLOW_HOSTS"),
            deny_hosts=hosts("LAPLOOP_DENY_HOSTS"),
        )


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: `url` after redirects, `content_type` in lower case with its parameters, `body`
    decompressed."""

    url: str
    content_type: str
    body: bytes


def fetch(url: str, config: WebConfig, *, way_out: str = "") -> Page:
    """GET a configured address.

    Args:
        url: http or https.
        config: limits.
        way_out: what to do if the service cannot be reached; ends the message.

    Raises:
        WebError: no connection, no answer in time, a status of 400 or more, or too much data.
    """
    import httpx

    deadline = time.monotonic() + config.timeout_s
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL as error:
        raise WebError(f"{url[:200]!r} is not a valid URL ({error}). {way_out}".strip()) from error
    proxies = host not in ("localhost", "127.0.0.1", "::1")
    with (
        _plain_errors(host, config, way_out),
        httpx.Client(
            trust_env=proxies, follow_redirects=True, max_redirects=_MAX_REDIRECTS, timeout=config.timeout_s
        ) as client,
        client.stream("GET", url, headers=_HEADERS) as response,
    ):
        return _page(response, str(response.url), config, deadline)


def fetch_guarded(
    url: str,
    config: WebConfig,
    *,
    resolver: Resolver = system_resolver,
    transport: httpx.BaseTransport | None = None,
) -> Page:
    """GET an address that a model or a page has chosen, through the guard described above.

    Args:
        url: as the model wrote it; nothing is repaired.
        config: limits and allowed private hosts.
        resolver: host and port → addresses; called once for each hop.
        transport: what carries the request; by default httpx's own, without proxies.

    Raises:
        WebError: refused by the guard, or as `fetch`.
    """
    import httpx

    deadline = time.monotonic() + config.timeout_s
    for _ in range(_MAX_REDIRECTS + 1):
        target = check_url(url, config.allow_hosts, resolver, deny_hosts=config.deny_hosts)
        # A client for each hop: two names on one address must share neither cookies nor a TLS connection.
        with httpx.Client(trust_env=False, follow_redirects=False, transport=transport) as client:
            hop = _hop(client, target, config, deadline)
        if isinstance(hop, Page):
            return hop
        url = hop
    raise WebError(f"more than {_MAX_REDIRECTS} redirects; the last led to {url[:200]}")


def _hop(client: httpx.Client, target: Target, config: WebConfig, deadline: float) -> Page | str:
    """Return the page, or the address that a redirect leads to. Tries the checked addresses in turn."""
    import httpx

    failure: httpx.TransportError | None = None
    way_out = "This tool connects directly and never through a proxy." if getproxies() else ""
    with _plain_errors(target.host, config, way_out):
        for address in target.addresses:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise _too_slow(target.host, config)
            request = client.build_request(
                "GET",
                target.pinned(address),
                headers={**_HEADERS, "Host": target.host_header},
                extensions={"sni_hostname": target.host},
                timeout=left_s,
            )
            try:
                response = client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
                continue
            try:
                if response.status_code in _REDIRECTS and "location" in response.headers:
                    return _joined(target.url, response.headers["location"])
                return _page(response, target.url, config, deadline)
            finally:
                response.close()
        if failure is not None:
            raise failure
    raise WebError(f"{target.host} has no address")


def _joined(base: str, location: str) -> str:
    import httpx

    try:
        return str(httpx.URL(base).join(location))
    except httpx.InvalidURL as error:
        raise WebError(f"a redirect leads to {location[:200]!r}, which is not a URL") from error


def _page(response: httpx.Response, url: str, config: WebConfig, deadline: float) -> Page:
    import httpx

    host = httpx.URL(url).host
    if response.status_code >= 400:
        raise WebError(f"{host} answered {response.status_code} {response.reason_phrase} for {url[:200]}")
    if response.status_code >= 300:
        raise WebError(f"{host} answered {response.status_code} without saying where to go")
    body = bytearray()
    for piece in _decoded(response, config.max_bytes):
        body += piece
        if len(body) > config.max_bytes:
            raise WebError(f"the answer of {host} is larger than the limit of {config.max_bytes:,} bytes")
        if time.monotonic() > deadline:
            raise _too_slow(host, config)
    return Page(url, response.headers.get("content-type", "").lower(), bytes(body))


def _decoded(response: httpx.Response, max_bytes: int) -> Iterator[bytes]:
    """Yield the body, decompressed in bounded pieces: httpx's own decoder would inflate a bomb before we can
    count."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise WebError(f"the answer is compressed as {encoding!r}, which was not asked for")
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by its header
    for raw in response.iter_raw():
        data = raw
        while data and not decoder.eof:
            yield _inflate(decoder.decompress, data, max_bytes + 1)
            data = decoder.unconsumed_tail
    if not decoder.eof:
        raise WebError("the answer's compressed data ends early")


def _inflate(decompress: Callable[[bytes, int], bytes], data: bytes, limit: int) -> bytes:
    try:
        return decompress(data, limit)
    except zlib.error as error:
        raise WebError(f"the answer's compressed data is damaged ({error})") from error


@contextmanager
def _plain_errors(host: str, config: WebConfig, way_out: str) -> Iterator[None]:
    """Turn httpx's exceptions into one line that names the host and the way out."""
    import httpx

    try:
        yield
    except httpx.TimeoutException as error:
        raise _too_slow(host, config) from error
    except httpx.TooManyRedirects as error:
        raise WebError(f"{host} redirected more than {_MAX_REDIRECTS} times") from error
    except (httpx.ConnectError, httpx.ProxyError) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise WebError(f"the TLS certificate of {host} is not accepted ({error})") from error
        raise WebError(f"cannot reach {host} (no network?). {way_out}".strip()) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise WebError(f"the request to {host} failed: {type(error).__name__}: {error}") from error


def _too_slow(host: str, config: WebConfig) -> WebError:
    return WebError(
        f"{host} did not answer completely within {config.timeout_s:g} s; try again later or another source"
    )
