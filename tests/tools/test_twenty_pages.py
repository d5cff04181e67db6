"""read_url on twenty pages of different kinds: title and main text are right, menus and small print are not in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest
from documents import make_pdf
from laploop.tools import Tool, WebConfig, builtin_tools

MENU = "<nav><a href=/>Home</a> <a href=/s>Subscribe now</a></nav>"
FOOT = "<footer>Imprint, cookies and small print</footer>"
EN = [
    "The river rose by forty centimetres during the night, and the old bridge was closed at dawn.",
    "Engineers who inspected the pillars said that the closure might last until the end of the month.",
    "Shop owners on both banks fear for their trade, since the next bridge lies nine kilometres upstream.",
]
ZH = [
    "昨夜河水上涨四十厘米，老桥于今晨封闭，两岸居民须绕行九公里。",
    "检查桥墩的工程师表示，封闭可能持续到本月底，具体时间取决于水位。",
    "两岸商户担心生意受到影响，市政府承诺增开免费摆渡船。",
]


def paragraphs(texts: list[str], times: int = 1) -> str:
    return "".join(f"<p>{text}</p>" for _ in range(times) for text in texts)


def html(title: str, body: str, head: str = "", lang: str = "en") -> str:
    return f"<!DOCTYPE html><html lang={lang}><head><title>{title}</title>{head}</head><body>{body}</body></html>"


class Page(NamedTuple):
    body: bytes
    content_type: str
    title: str
    has: list[str]
    lacks: list[str]


LACKS = ["Subscribe now", "small print"]
ZH_MENU, ZH_FOOT = "<nav><a href=/>首页</a><a href=/s>立即订阅</a></nav>", "<footer>版权所有 备案号</footer>"
ZH_PAGE = html("老桥今晨封闭", f"{ZH_MENU}<article><h1>老桥今晨封闭</h1>{paragraphs(ZH)}</article>{ZH_FOOT}", lang="zh")
ZH_LONG = html("老桥长文", f"{ZH_MENU}<main><h1>老桥长文</h1>{paragraphs(ZH, 20)}</main>{ZH_FOOT}", lang="zh-CN")
ZH_LACKS = ["立即订阅", "备案号"]
TABLE = "<table><tr><th>City</th><th>Level</th></tr><tr><td>Passau</td><td>8.21 m</td></tr></table>"
BANNER = "<div class=cookie-banner role=dialog><button>Accept all</button><p>We value your privacy.</p></div>"
LD = (
    '<script type="application/ld+json">{"@type": "NewsArticle", "headline": "Not shown", "articleBody": "no"}</script>'
)

PAGES = {
    "news, en": Page(
        html("Bridge closed", f"{MENU}<article><h1>Bridge closed</h1>{paragraphs(EN)}</article>{FOOT}").encode(),
        "text/html; charset=utf-8", "Bridge closed", EN, LACKS,
    ),
    "news, long, en": Page(
        html("Bridge, the long read", f"{MENU}<article><h1>Long</h1>{paragraphs(EN, 12)}</article>{FOOT}").encode(),
        "text/html", "Bridge, the long read", EN, LACKS,
    ),
    "news, zh": Page(ZH_PAGE.encode(), "text/html; charset=utf-8", "老桥今晨封闭", ZH, ZH_LACKS),
    "news, zh, GBK in the header": Page(ZH_PAGE.encode("gbk"), "text/html; charset=GBK", "老桥今晨封闭", ZH, ZH_LACKS),
    "news, zh, gb2312 in a meta tag": Page(
        ZH_LONG.replace("<head>", "<head><meta charset=gb2312>").encode("gbk"), "text/html", "老桥长文", ZH, ZH_LACKS
    ),
    "news, zh, GB18030 and nothing says so": Page(ZH_PAGE.encode("gb18030"), "text/html", "老桥今晨封闭", ZH, ZH_LACKS),
    "news, zh-Hant, Big5": Page(
        html("老橋今晨封閉", paragraphs(["昨夜河水上漲四十厘米，老橋於今晨封閉。"]), lang="zh-Hant").encode("big5"),
        "text/html; charset=Big5", "老橋今晨封閉", ["昨夜河水上漲四十厘米"], [],
    ),
    "page, ja, Shift-JIS": Page(
        html("橋は閉鎖", paragraphs(["昨夜、川の水位が四十センチ上がりました。"]), lang="ja").encode("shift-jis"),
        "text/html; charset=Shift_JIS", "橋は閉鎖", ["川の水位が四十センチ"], [],
    ),
    "page, de, Latin-1": Page(
        html("Brücke gesperrt", paragraphs(["Die Brücke über den Fluß bleibt gesperrt."])).encode("latin-1"),
        "text/html; charset=iso-8859-1", "Brücke gesperrt", ["über den Fluß"], [],
    ),
    "page, UTF-16": Page(html("Wide", paragraphs(EN)).encode("utf-16"), "text/html; charset=utf-16", "Wide", EN, []),
    "blog with a title of its own for sharing": Page(
        html("My blog | Home", f"{MENU}<article>{paragraphs(EN, 8)}</article><aside>Related: cats</aside>{FOOT}",
             '<meta property="og:title" content="What I saw at the bridge">').encode(),
        "text/html", "What I saw at the bridge", EN, [*LACKS, "Related: cats"],
    ),
    "documentation with code": Page(
        html("Setup", f"{MENU}<main><h1>Setup</h1><p>Run this in a terminal first:</p>"
             "<pre>pip install bridge\nbridge init</pre>"
             f"<h2>Next</h2><ul><li>Open the settings</li><li>Choose a river</li></ul></main>{FOOT}").encode(),
        "text/html", "Setup", ["pip install bridge", "bridge init", "Choose a river"], LACKS,
    ),
    "a table": Page(
        html("Levels", f"{MENU}<h1>Levels</h1><p>Measured at noon.</p>{TABLE}{FOOT}").encode(),
        "text/html", "Levels", ["Passau", "8.21 m", "Measured at noon"], LACKS,
    ),
    "a cookie banner and scripts": Page(
        html("Bridge", f"{BANNER.replace('<div', '<form').replace('</div>', '</form>')}<script>var secret = 1</script>"
             f"<article>{paragraphs(EN, 6)}</article><noscript>Enable JavaScript</noscript>", LD).encode(),
        "text/html", "Bridge", EN, ["Accept all", "var secret", "Enable JavaScript", "Not shown"],
    ),
    "XHTML that declares its encoding": Page(
        ('<?xml version="1.0" encoding="UTF-8"?>' + html("XHTML", paragraphs(EN))).encode(),
        "application/xhtml+xml", "XHTML", EN, [],
    ),
    "HTML that nobody would write so": Page(
        b"<title>Broken</title><body><p>The river <b>rose forty<p>centimetres & the bridge<br>was closed</div></table>",
        "text/html", "Broken", ["forty", "centimetres & the bridge", "was closed"], [],
    ),
    "no title but a heading": Page(
        f"<html><body><h1>Only a heading</h1>{paragraphs(EN)}</body></html>".encode(),
        "text/html", "Only a heading", EN, [],
    ),
    "JSON": Page(json.dumps({"level_m": 8.21, "city": "帕绍"}, ensure_ascii=False).encode(), "application/json", "",
                 ['"level_m": 8.21', "帕绍"], []),
    "plain text": Page(b"Bridge log\n\n06:10 closed\n", "text/plain; charset=utf-8", "", ["06:10 closed"], ["<"]),
    "PDF": Page(make_pdf("Notice of closure", "Until further notice (see map)."), "application/pdf", "page",
                ["Notice of closure", "Until further notice (see map)."], []),
}  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Tool, str]]:
    """read_url, and the address of a server that has PAGES by number."""
    pages = list(PAGES.values())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages[int(self.path.split("/")[1])]
            self.send_response(200)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_port}"
    read_url = next(item for item in builtin_tools(web=WebConfig(allow_hosts=(address,))) if item.name == "read_url")
    yield read_url, f"http://{address}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_there_are_twenty() -> None:
    assert len(PAGES) == 20


@pytest.mark.parametrize("name", PAGES)
def test_title_and_main_text(site: tuple[Tool, str], name: str) -> None:
    read_url, base = site
    page = PAGES[name]
    result = read_url.invoke({"url": f"{base}/{list(PAGES).index(name)}/page"})
    assert not result.is_error, result.content
    assert result.value["title"] == page.title
    text = result.value["text"]
    assert not [part for part in page.has if part not in text], text
    assert not [part for part in page.lacks if part in text], text
