"""Which addresses a model may make this machine read: the guard against server-side request forgery. It opens
nothing.

Allowed are http and https to public unicast addresses. Refused: credentials in the URL; private, loopback,
link-local, carrier-grade NAT, multicast, reserved and cloud metadata addresses, also inside IPv6 (mapped,
compatible, 6to4, Teredo, NAT64); hosts that are numbers in any but the usual dotted spelling (decimal, octal,
hexadecimal, short forms); control characters, spaces and backslashes. A `host` or `host:port` in the allow
list is exempt from the address check, and from nothing else. The deny list refuses whatever it names, also with a dot
in front for a name and all below it, and beats the allow list.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import WebError

Resolver = Callable[[str, int], Sequence[str]]

_PORTS = {"http": 80, "https": 443}
_BAD_CHARS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\u200b-\u200f\ufeff]")
# What inet_aton would read as (a part of) a number: the URL standard's "ends in a number" check.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_EXTRA_REFUSED = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure's platform address: public by number, private by nature
        # Python's own tables differ between versions in these two:
        "192.0.0.0/24",  # IETF assignments (RFC 6890); Oracle's metadata service lives here
        "2001::/23",  # IETF assignments, Teredo among them (RFC 2928)
        "192.88.99.0/24",  # 6to4 relay anycast (RFC 7526)
        "64:ff9b:1::/48",  # local-use NAT64 (RFC 8215)
        "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765)
        "::/96",  # IPv4-compatible (RFC 4291)
        "100::/64",  # discard (RFC 6666)
        "5f00::/16",  # segment routing (RFC 9602)
        "fec0::/10",  # site-local (RFC 3879)
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that passed: `host` in ASCII, its checked `addresses`, and how to ask one of them for it."""

    url: str
    host: str
    host_header: str
    addresses: tuple[str, ...]

    def pinned(self, address: str) -> str:
        """Return the URL with `address` in the place of the host."""
        import httpx

        return str(httpx.URL(self.url).copy_with(host=address, fragment=None))


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Return the addresses of `host` from the operating system; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def check_url(url: str, allow_hosts: Sequence[str], resolver: Resolver, *, deny_hosts: Sequence[str] = ()) -> Target:
    """Return the checked target of `url`; `resolver` is called at most once.

    Raises:
        WebError: the URL is malformed or leads where a model may not go; says which, and what is allowed.
    """
    import httpx

    if _BAD_CHARS.search(url):
        raise WebError(f"{url[:200]!r} is not a URL: it contains spaces, control characters or backslashes")
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii").lower()
        port = parsed.port
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise WebError(f"{url[:200]!r} is refused: not a valid URL ({error})") from error
    if parsed.scheme not in _PORTS:
        raise WebError(f"{url[:200]!r} is refused: give a full http:// or https:// URL")
    if parsed.userinfo or "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise WebError("the URL is refused: it carries a user name or password")
    host = host.strip("[]").rstrip(".")
    if not host:
        raise WebError(f"{url[:200]!r} has no host")
    port = _PORTS[parsed.scheme] if port is None else port
    if not 0 < port < 65_536:
        raise WebError(f"{url[:200]!r} is not a valid URL (port {port})")
    if any(_is_denied(host, port, entry) for entry in deny_hosts):
        raise WebError(f"{host} is refused: it is on the deny list; answer without it, or from another source")
    literal = _literal(host)
    allowed = _is_allowed(host, port, allow_hosts)
    if literal is not None:
        addresses: Sequence[str] = [str(literal)]
    else:
        addresses = _resolved(host, port, resolver)
    if not allowed:
        for address in addresses:
            _check_address(host, address)
    return Target(str(parsed), host, parsed.netloc.decode("ascii"), tuple(addresses))


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address if the host is one, None if it is a name; refuse numbers in odd spellings."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if ":" in host or "%" in host or _NUMERIC_LABEL.fullmatch(host.rsplit(".", 1)[-1]):
        raise WebError(f"the host {host!r} is refused: write a name, or an IP address in its usual form")
    return None


def _resolved(host: str, port: int, resolver: Resolver) -> Sequence[str]:
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise WebError(f"cannot find the host {host} (no network, or a wrong name?)") from error
    if not addresses:
        raise WebError(f"the host {host} has no address")
    return addresses


def _check_address(host: str, address: str) -> None:
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError as error:
        raise WebError(f"the host {host} resolves to {address!r}, which is not an IP address") from error
    if not is_public(parsed):
        raise WebError(
            f"{host} is refused: it leads to a private, local or reserved address; only public pages are read"
        )


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is public unicast, and so is any IPv4 address that it carries inside."""
    if any(address.version == network.version and address in network for network in _EXTRA_REFUSED):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(part is not None and not is_public(part) for part in inner):
            return False
        if address.ipv4_mapped is not None:  # judged by the address inside alone
            return True
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
        or address.is_link_local or address.is_private
    )  # fmt: skip


def _is_allowed(host: str, port: int, allow_hosts: Sequence[str]) -> bool:
    for entry in allow_hosts:
        entry = entry.strip().lower()
        if entry.strip("[]") == host:
            return True
        name, _, number = entry.rpartition(":")
        if number == str(port) and name.strip("[]").rstrip(".") == host:
            return True
    return False


def _is_denied(host: str, port: int, entry: str) -> bool:
    name = entry.strip().lower()
    if not name.isascii():
        name = name.encode("idna").decode("ascii")
    if name == "." or (name.startswith(".") and f".{host}".endswith(name.rstrip("."))):
        return True
    return _is_allowed(host, port, (name,))
