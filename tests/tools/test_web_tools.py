"""get_weather, get_news and read_url over real HTTP on loopback: what services send, and what goes wrong."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from documents import make_pdf
from laploop.tools import Tool, ToolResult, WebConfig, WebError, builtin_tools
from laploop.tools.page_text import read_page

WTTR = {
    "current_condition": [
        {"temp_C": "-3", "FeelsLikeC": "-7", "humidity": "40", "windspeedKmph": "12",
         "weatherDesc": [{"value": "Light snow "}], "lang_zh": [{"value": "小雪"}]}
    ]
}  # fmt: skip
RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>{items}</channel></rss>"""
STORY = "<p>" + "The river rose by forty centimetres during the night, and the bridge was closed. " * 12 + "</p>"


@dataclass
class Site:
    """A server whose answers are set by path: (status, headers, body)."""

    port: int
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, path: str, body: bytes | str, content_type: str = "", status: int = 200, **headers: str) -> str:
        data = body.encode("utf-8") if isinstance(body, str) else body
        kind = {"Content-Type": content_type} if content_type else {}
        self.pages[path] = (
            status,
            {**kind, **{key.replace("_", "-"): value for key, value in headers.items()}},
            data,
        )
        return f"http://127.0.0.1:{self.port}{path}"

    def tools(self, **settings: Any) -> dict[str, Tool]:
        base = f"http://127.0.0.1:{self.port}"
        config = WebConfig(f"{base}/w", f"{base}/n?q={{topic}}", (f"127.0.0.1:{self.port}",), **settings)
        return {item.name: item for item in builtin_tools(web=config)}

    def read(self, url: str, **settings: Any) -> ToolResult:
        return self.tools(**settings)["read_url"].invoke({"url": url})


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            status, headers, body = made.pages.get(self.path, made.pages.get(self.path.split("?")[0], (404, {}, b"no")))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Site(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def test_weather_asks_in_chinese_for_chinese_names(site: Site) -> None:
    site.put("/w/%E5%8C%97%E4%BA%AC", json.dumps(WTTR))
    result = site.tools()["get_weather"].invoke('{"city": "北京"}')
    assert result.content == (
        '{"city": "北京", "temperature_c": -3, "feels_like_c": -7, '
        '"humidity_percent": 40, "wind_kmph": 12, "description": "小雪"}'
    )
    assert site.asked == ["/w/%E5%8C%97%E4%BA%AC?format=j1&lang=zh"]


def test_weather_asks_in_english_for_other_names(site: Site) -> None:
    site.put("/w/New%20York", json.dumps(WTTR))
    result = site.tools()["get_weather"].invoke({"city": " New York "})
    assert result.value["description"] == "Light snow" and site.asked == ["/w/New%20York?format=j1"]


@pytest.mark.parametrize(
    "body",
    ["Unknown location", "{}", '{"current_condition": []}', "[]", '{"current_condition": [{}]}', "null"],
)
def test_weather_without_data_says_so(site: Site, body: str) -> None:
    site.put("/w/Atlantis", body)
    result = site.tools()["get_weather"].invoke({"city": "Atlantis"})
    assert result == ToolResult(
        "get_weather: the weather service has no data for 'Atlantis'; check the name of the city",
        is_error=True,
    )


def test_city_cannot_leave_the_service_path(site: Site) -> None:
    site.tools()["get_weather"].invoke({"city": "../secret?x=1#y"})
    assert site.asked == ["/w/..%2Fsecret%3Fx%3D1%23y?format=j1"]


def test_empty_city_and_topic_are_refused(site: Site) -> None:
    tools = site.tools()
    assert tools["get_weather"].invoke({"city": " "}).is_error and tools["get_news"].invoke({"topic": ""}).is_error
    assert site.asked == []


def news_item(title: str, link: str) -> str:
    return f"<item><title>{title}</title><link>{link}</link></item>"


def test_news_gives_at_most_five_titles_and_links(site: Site) -> None:
    items = [news_item(f"标题 {n} &lt;b&gt;x&lt;/b&gt; &amp;amp; y", f"https://e.example/{n}") for n in range(7)]
    items.insert(0, news_item("bad link", "javascript:alert(1)"))
    site.put("/n", RSS.format(items="".join(items)), "application/rss+xml")
    result = site.tools()["get_news"].invoke({"topic": "AI 芯片"})
    assert [item["link"] for item in result.value] == [f"https://e.example/{n}" for n in range(5)]
    assert result.value[0]["title"].startswith("标题 0 x &") and list(result.value[0]) == ["title", "link"]
    assert site.asked == ["/n?q=AI%20%E8%8A%AF%E7%89%87"]


def test_news_reads_atom_and_gbk(site: Site) -> None:
    atom = '<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><entry><title>A</title><link href="https://e.example/a"/></entry></feed>'
    site.put("/n", atom, "application/atom+xml")
    assert site.tools()["get_news"].invoke({"topic": "x"}).value == [{"title": "A", "link": "https://e.example/a"}]
    site.put(
        "/n",
        RSS.format(items=news_item("新闻", "https://e.example/b")).encode("gbk"),
        "text/xml; charset=gbk",
    )
    assert site.tools()["get_news"].invoke({"topic": "x"}).value == [{"title": "新闻", "link": "https://e.example/b"}]


def test_news_unwraps_an_aggregator_link(site: Site) -> None:
    link = "http://www.bing.com/news/apiclick.aspx?ref=FexRss&amp;url=https%3a%2f%2fe.example%2fa%3fb%3d1&amp;c=2"
    site.put("/n", RSS.format(items=news_item("A", link)), "text/xml")
    assert site.tools()["get_news"].invoke({"topic": "x"}).value == [{"title": "A", "link": "https://e.example/a?b=1"}]


def test_the_default_feed_asks_for_rss_whatever_the_topic_holds(site: Site) -> None:
    """The default was Google News, whose links lead to a page that only a script leaves: read_url got no article."""
    default = WebConfig().news_url
    assert default.startswith("https://www.bing.com/")
    path = default.removeprefix("https://www.bing.com")
    config = WebConfig(news_url=f"http://127.0.0.1:{site.port}{path}")
    site.put("/news/search", RSS.format(items=news_item("A", "https://e.example/a")), "text/xml")
    tools = {item.name: item for item in builtin_tools(web=config)}
    assert tools["get_news"].invoke({"topic": "R&D = 研发?"}).value == [{"title": "A", "link": "https://e.example/a"}]
    assert site.asked == ["/news/search?q=R%26D%20%3D%20%E7%A0%94%E5%8F%91%3F&format=rss"]


def test_no_news_is_an_empty_list_and_no_feed_is_an_error(site: Site) -> None:
    site.put("/n", RSS.format(items=""), "application/rss+xml")
    assert site.tools()["get_news"].invoke({"topic": "x"}).content == "[]"
    site.put("/n", "<html><body>captcha</body></html>", "text/html")
    assert "did not answer with RSS" in site.tools()["get_news"].invoke({"topic": "x"}).content


def page(body: str, head: str = "") -> str:
    return f"<!doctype html><html><head><title>A  page</title>{head}</head><body>{body}</body></html>"


def test_html_gives_title_and_main_text_without_navigation(site: Site) -> None:
    nav = "<nav><a href='/'>Home</a></nav><script>var x = 'hidden'</script>"
    url = site.put("/a", page(f"{nav}<main><h1>Flood</h1>{STORY}</main><footer>Imprint</footer>"), "text/html")
    value = site.read(url).value
    assert value["title"] == "A page" and value["url"] == url and "forty centimetres" in value["text"]
    assert not any(word in value["text"] for word in ("Home", "hidden", "Imprint"))


def test_short_chinese_page_is_read_without_navigation(site: Site) -> None:
    """trafilatura took three short Chinese paragraphs for too little text and gave the navigation with
    them."""
    url = site.put(
        "/a",
        page("<nav>首页</nav><main><p>第一段。</p><p>共有 4317 人。</p></main><footer>版权</footer>"),
        "text/html",
    )
    assert site.read(url).value["text"] == "第一段。\n共有 4317 人。"


@pytest.mark.parametrize(
    ("encoding", "content_type", "head"),
    [
        ("gbk", "text/html; charset=GBK", ""),
        ("gb18030", "text/html; charset=gb2312", ""),
        ("gbk", "text/html", "<meta charset=gb2312>"),
        ("gbk", "text/html", '<meta http-equiv="Content-Type" content="text/html; charset=gbk">'),
        ("gbk", "text/html", ""),
        ("utf-8", "text/html", ""),
        ("utf-8", "text/html; charset=iso-8859-1x", ""),
        ("utf-8-sig", "text/html; charset=gbk", ""),
        ("utf-16", "text/html", ""),
        ("big5", "text/html; charset=big5", ""),
        ("utf-8", "", ""),
    ],
)
def test_charsets(site: Site, encoding: str, content_type: str, head: str) -> None:
    url = site.put("/a", page("<p>今天的新聞內容，測試。</p>", head).encode(encoding), content_type)
    assert site.read(url).value["text"] == "今天的新聞內容，測試。"


@pytest.mark.parametrize("odd", ["\x1b", "\x08", "\x0c", "\ufffe", "&#27;", "&#xFFFE;"])
@pytest.mark.parametrize("n_words", [1, 2000])
def test_a_page_with_control_characters_is_read(odd: str, n_words: int) -> None:
    """lxml reads them and refuses to set them: such pages once ended in a ValueError."""
    page = f"<html><body><p>ninety{odd}</p>{odd}<p>six {'words ' * n_words}</p></body></html>"
    text = read_page(page.encode(), "text/html; charset=utf-8", "http://x.example/").text
    assert "ninety" in text and "six words" in text


def test_json_and_plain_text_pass_as_they_are(site: Site) -> None:
    assert site.read(site.put("/j", '{"a": [1, "二"]}', "application/json")).value["text"] == '{"a": [1, "二"]}'
    assert site.read(site.put("/t", "one\ntwo <b>\n", "text/plain")).value["text"] == "one\ntwo <b>"
    assert site.read(site.put("/l", b"caf\xe9", "text/plain; charset=latin-1")).value["text"] == "café"


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (b"%PDF-1.7 x", "application/pdf", "is a PDF (10 bytes) that cannot be shown as text: not a PDF"),
        (b"\x89PNG\x00\x00", "image/png", "image/png"),
        (b"a\x00b", "text/plain", "cannot be shown as text"),
        (b"\x00\x01\x02", "", "cannot be shown as text"),
        (b"", "text/html", "no readable text"),
        (b"", "text/plain", "is empty"),
        (b"<html><title>App</title><body><script>x()</script></body></html>", "text/html", "(title: App)"),
    ],
)
def test_what_cannot_be_read_is_an_error(site: Site, body: bytes, content_type: str, said: str) -> None:
    result = site.read(site.put("/x", body, content_type))
    assert result.is_error and said in result.content and result.content.startswith("read_url: ")


def test_a_pdf_is_read_by_what_it_is(site: Site) -> None:
    body = make_pdf("Annual report", "Sales rose by four percent.")
    for kind in ("application/pdf", "application/octet-stream", ""):
        value = site.read(site.put("/files/report.pdf?x=1", body, kind), cache_age_s=0).value
        assert (value["title"], value["text"]) == ("report.pdf", "Annual report\nSales rose by four percent.")


def test_long_text_is_cut_and_marked(site: Site) -> None:
    text = site.read(site.put("/a", "word " * 2000, "text/plain")).value["text"]
    assert len(text) < 2_100 and text.endswith("[cut: 1,999 of 9,999 characters]")


@pytest.mark.parametrize("status", [400, 403, 404, 418, 500, 503])
def test_status_codes(site: Site, status: int) -> None:
    result = site.read(site.put("/x", "no", "text/plain", status))
    assert result.is_error and f"answered {status}" in result.content


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(b"hello" * 9), "gzip"),
        (zlib.compress(b"hello" * 9), "deflate"),
        (b"hello" * 9, "identity"),
    ],
)
def test_compressed_pages(site: Site, body: bytes, encoding: str) -> None:
    url = site.put("/z", body, "text/plain", Content_Encoding=encoding)
    assert site.read(url).value["text"] == "hello" * 9


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (gzip.compress(b"\x00" * 50_000_000), "gzip", "larger than the limit"),
        (b"x" * 1001, "identity", "larger than the limit"),
        (b"not gzip", "gzip", "damaged"),
        (gzip.compress(b"hello")[:-12], "gzip", "ends early"),
        (b"x", "br", "not asked for"),
    ],
    ids=["bomb", "large", "damaged", "cut", "unknown"],
)
def test_size_is_counted_after_decompression(site: Site, body: bytes, encoding: str, said: str) -> None:
    result = site.read(site.put("/z", body, "text/plain", Content_Encoding=encoding), max_bytes=1000)
    assert result.is_error and said in result.content


def test_service_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        base = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = WebConfig(base, f"{base}/{{topic}}", (f"127.0.0.1:{silent.getsockname()[1]}",), timeout_s=0.3)
        tools = {item.name: item for item in builtin_tools(web=config)}
        for name, arguments in (
            ("get_weather", {"city": "a"}),
            ("get_news", {"topic": "a"}),
            ("read_url", {"url": base}),
        ):
            result = tools[name].invoke(arguments)
            assert result.is_error and "within 0.3 s" in result.content and result.content.startswith(f"{name}: ")


def test_offline_is_one_clear_line_with_a_way_out() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    config = WebConfig(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/{{topic}}", (f"127.0.0.1:{port}",))
    tools = {item.name: item for item in builtin_tools(web=config)}
    weather = tools["get_weather"].invoke({"city": "Paris"})
    assert weather.content == (
        "get_weather: cannot reach 127.0.0.1 (no network?). "
        "Set LAPLOOP_WEATHER_URL to a service that can be reached, or answer without it."
    )
    assert "LAPLOOP_NEWS_URL" in tools["get_news"].invoke({"topic": "AI"}).content
    assert "cannot reach 127.0.0.1" in tools["read_url"].invoke({"url": f"http://127.0.0.1:{port}/"}).content


def test_environment_proxy_is_used_for_services(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{site.port}")
    site.put("http://weather.example/w/Rome", json.dumps(WTTR))
    tools = {item.name: item for item in builtin_tools(web=WebConfig("http://weather.example/w"))}
    assert tools["get_weather"].invoke({"city": "Rome"}).value["temperature_c"] == -3


def test_config_from_environment_and_its_errors() -> None:
    config = WebConfig.from_env({"LAPLOOP_WEATHER_URL": "http://w", "LAPLOOP_ALLOW_HOSTS": "a:1, b ,"})
    assert (config.weather_url, config.allow_hosts) == (
        "http://w",
        ("a:1", "b"),
    ) and "{topic}" in config.news_url
    assert WebConfig.from_env({}) == WebConfig()
    for wrong, said in (
        ({"weather_url": "wttr.in"}, "weather_url"),
        ({"news_url": "http://n"}, "topic"),
        ({"timeout_s": 0}, "timeout_s"),
    ):
        with pytest.raises(WebError, match=said):
            WebConfig(**wrong)  # type: ignore[arg-type]


def test_a_page_is_fetched_once_while_it_is_young(site: Site) -> None:
    url = site.put("/a", "one", "text/plain")
    read_url = site.tools()["read_url"]
    first, second = read_url.invoke({"url": url}), read_url.invoke({"url": url})
    assert first.value == second.value and site.asked == ["/a"] and second.notes == ("read 0 s ago",)
    always = site.tools(cache_age_s=0)["read_url"]
    assert [always.invoke({"url": url}).notes for _ in range(2)] == [(), ()] and len(site.asked) == 3
    with pytest.raises(WebError, match="cache_age_s"):
        WebConfig(cache_age_s=-1)


def test_errors_are_not_kept_and_the_oldest_page_makes_room(site: Site) -> None:
    read_url = site.tools()["read_url"]
    assert read_url.invoke({"url": f"http://127.0.0.1:{site.port}/later"}).is_error
    later = site.put("/later", "there", "text/plain")
    assert read_url.invoke({"url": later}).value["text"] == "there"
    for number in range(32):
        read_url.invoke({"url": site.put(f"/{number}", "x", "text/plain")})
    read_url.invoke({"url": later})
    assert site.asked.count("/later") == 3
