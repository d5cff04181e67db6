"""Sample weather, news and pages on loopback, drawn anew at every start. Nothing here is real, and it says
so.

For the demo and for tests: the tools then run over real HTTP without a network, and since the values change,
an answer can only be right if it came from the tools. It knows the web tools' formats (wttr.in's JSON, RSS,
HTML), not the tools.
"""

from __future__ import annotations

import html
import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from laploop.tools import WebConfig

NOTICE = "示例数据 / sample data"
_N_ITEMS = 5
_SKIES = (
    ("晴", "Sunny"),
    ("多云", "Partly cloudy"),
    ("阴", "Overcast"),
    ("小雨", "Light rain"),
    ("雾", "Mist"),
)
_FELT = (-3, -2, -1, 1, 2, 3)  # felt minus measured, in degrees
_SAME_CITY = {"beijing": "北京", "北京市": "北京", "shanghai": "上海", "上海市": "上海"}
# {topic}, {place}, {n}: filled anew at every start. Each has a title and three short paragraphs.
_STORIES_ZH = (
    (
        "{topic} 开源项目在{place}发布新版本",
        "新版本把内存占用降低了{n}兆字节。",
        "维护者说，笔记本电脑也能流畅运行。",
    ),
    ("{place}举行 {topic} 开发者大会", "大会共有{n}名开发者报名参加。", "会上展示了多个可以离线运行的演示。"),
    ("{place}的学校开设 {topic} 课程", "第一学期有{n}名学生选修。", "教师表示，课程以动手实验为主。"),
    (
        "{topic} 帮助{place}医院缩短等候时间",
        "试点期间共处理了{n}份病历。",
        "医院计划明年把试点扩大到更多科室。",
    ),
    ("{place}图书馆用 {topic} 整理古籍", "项目组已经整理了{n}册古籍。", "整理结果将免费向公众开放。"),
    ("研究团队公布 {topic} 节能测试结果", "测试一共进行了{n}小时。", "团队在{place}公开了全部原始数据。"),
)
_STORIES_EN = (
    ("{topic} lab in {place} opens its data to everyone", "The collection holds {n} recordings.",
     "Anyone may copy it without asking."),
    ("Farmers near {place} try {topic} on old laptops", "A total of {n} farms took part in the trial.",
     "Most of them have no fast network."),
    ("{place} museum lets {topic} describe its paintings", "So far {n} paintings have a description.",
     "Visitors can correct every text."),
    ("Volunteers in {place} map paths with {topic}", "They covered {n} kilometres in one spring.",
     "The map is checked by hand every week."),
    ("{place} radio lets {topic} write its subtitles", "Already {n} broadcasts can be read.",
     "Listeners report the mistakes they find."),
)  # fmt: skip
_PLACES_ZH = ("杭州", "成都", "武汉", "西安", "南京", "厦门")
_PLACES_EN = ("Oslo", "Porto", "Leeds", "Quito", "Turin", "Hobart")


@dataclass(frozen=True, slots=True)
class Weather:
    """A city's drawn values, as get_weather gives them."""

    city: str
    temperature_c: int
    feels_like_c: int
    humidity_percent: int
    wind_kmph: int
    description_zh: str
    description_en: str


@dataclass(frozen=True, slots=True)
class Article:
    """A drawn page; `fact` is a number that stands in its text and nowhere else."""

    title: str
    link: str
    paragraphs: tuple[str, ...]
    fact: str


class SampleServices:
    """A context manager: while it is open, the services answer on a free port of 127.0.0.1.

    Args:
        seed: for the drawn values; None draws from the system.
        language: of the news: "en", or "zh" for three Chinese items and two English ones.
    """

    def __init__(self, seed: int | None = None, language: str = "zh") -> None:
        self._seed = random.SystemRandom().getrandbits(64) if seed is None else seed
        self._n_english = _N_ITEMS if language == "en" else 2
        self._lock = threading.Lock()
        self._weather = self._draw_two_cities()
        self._news: dict[str, tuple[Article, ...]] = {}
        self._articles: dict[str, Article] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SampleServices:
        services = self

        class Handler(_Handler):
            sample = services

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="sample-services", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    @property
    def port(self) -> int:
        """The port; raises RuntimeError outside the `with` block."""
        if self._server is None:
            raise RuntimeError("SampleServices is not open; use it as `with SampleServices() as services:`")
        return self._server.server_port

    def web_config(self) -> WebConfig:
        """Return the setting that points the web tools here and lets read_url read these pages."""
        base = f"http://127.0.0.1:{self.port}"
        return WebConfig(
            weather_url=f"{base}/weather",
            news_url=f"{base}/news?q={{topic}}",
            allow_hosts=(f"127.0.0.1:{self.port}",),
        )

    def weather(self, city: str) -> Weather:
        """Return the values drawn for a city (any name has some; 北京 and Beijing are one city)."""
        key = _SAME_CITY.get(city.strip().lower(), city.strip().lower())
        with self._lock:
            if key not in self._weather:
                self._weather[key] = _draw_weather(key, random.Random(f"{self._seed}/{key}"))  # noqa: S311 - sample data
            return self._weather[key]

    def news(self, topic: str) -> tuple[Article, ...]:
        """Return the five articles drawn for a topic."""
        port = self.port
        key = topic.strip()
        with self._lock:
            if key not in self._news:
                draw = random.Random(f"{self._seed}/{key}/news")  # noqa: S311 - sample data
                self._news[key] = _draw_articles(key, draw, port, self._n_english)
                self._articles.update({_slug(article.link): article for article in self._news[key]})
            return self._news[key]

    @property
    def articles(self) -> Mapping[str, Article]:
        """The articles drawn so far, by the last part of their link."""
        with self._lock:
            return dict(self._articles)

    def _draw_two_cities(self) -> dict[str, Weather]:
        """Draw 北京 and 上海 at least two degrees apart, either the hotter, and by what is felt too."""
        draw = random.Random(f"{self._seed}/two")  # noqa: S311 - sample data
        colder = draw.randint(-5, 30)
        pair = [colder, colder + draw.randint(2, 9)]
        draw.shuffle(pair)
        felt = draw.choice(_FELT)  # the same for both: "hotter" has one answer, whichever figure is compared
        return {
            city: _draw_weather(city, draw, degrees, felt) for city, degrees in zip(("北京", "上海"), pair, strict=True)
        }


def _draw_weather(city: str, draw: random.Random, degrees: int | None = None, felt: int | None = None) -> Weather:
    degrees = draw.randint(-8, 36) if degrees is None else degrees
    felt = draw.choice(_FELT) if felt is None else felt
    sky_zh, sky_en = draw.choice(_SKIES)
    return Weather(city, degrees, degrees + felt, draw.randint(20, 95), draw.randint(1, 40), sky_zh, sky_en)


def _draw_articles(topic: str, draw: random.Random, port: int, n_english: int) -> tuple[Article, ...]:
    stories = [(story, True) for story in draw.sample(_STORIES_ZH, _N_ITEMS - n_english)]
    stories += [(story, False) for story in draw.sample(_STORIES_EN, n_english)]
    draw.shuffle(stories)
    facts = draw.sample(range(1_001, 9_999), _N_ITEMS)
    places = {True: draw.sample(_PLACES_ZH, _N_ITEMS), False: draw.sample(_PLACES_EN, _N_ITEMS)}
    return tuple(
        _article(story, chinese, topic or "AI", places[chinese][index], str(facts[index]), draw, port)
        for index, (story, chinese) in enumerate(stories)
    )


def _article(
    story: tuple[str, str, str],
    chinese: bool,
    topic: str,
    place: str,
    fact: str,
    draw: random.Random,
    port: int,
) -> Article:
    title, first, second = (part.format(topic=topic, place=place, n=fact) for part in story)
    opening = f"{title}。以下是详细情况。" if chinese else f"{title}. Here is what happened."
    link = f"http://127.0.0.1:{port}/article/{draw.getrandbits(40):010x}"
    return Article(title, link, (opening, first, second), fact)


def _slug(link: str) -> str:
    return link.rsplit("/", 1)[-1]


class _Handler(BaseHTTPRequestHandler):
    """Three kinds of pages; everything else is 404."""

    sample: SampleServices

    def do_GET(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        kind, _, name = parts.path.strip("/").partition("/")
        name = unquote(name)
        query = parse_qs(parts.query)
        if kind == "weather" and name:
            self._send("application/json", _weather_json(self.sample.weather(name)))
        elif kind == "news" and not name:
            topic = query.get("q", [""])[0]
            self._send("application/rss+xml; charset=utf-8", _rss(topic, self.sample.news(topic)))
        elif kind == "article" and name in self.sample.articles:
            self._send("text/html; charset=utf-8", _page(self.sample.articles[name]))
        else:
            self.send_error(404, "No such sample page")

    def _send(self, content_type: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the user's terminal clean."""


def _weather_json(weather: Weather) -> str:
    """Return wttr.in's `?format=j1`, as far as get_weather reads it: numbers are strings there."""
    now = {
        "temp_C": str(weather.temperature_c),
        "FeelsLikeC": str(weather.feels_like_c),
        "humidity": str(weather.humidity_percent),
        "windspeedKmph": str(weather.wind_kmph),
        "weatherDesc": [{"value": weather.description_en}],
        "lang_zh": [{"value": weather.description_zh}],
    }
    return json.dumps({"current_condition": [now], "notice": NOTICE}, ensure_ascii=False)


def _rss(topic: str, articles: tuple[Article, ...]) -> str:
    items = "".join(
        f"<item><title>{html.escape(item.title)}</title><link>{html.escape(item.link)}</link></item>"
        for item in articles
    )
    channel = f"<title>{html.escape(topic)} ({NOTICE})</title><description>{NOTICE}</description>"
    return f'<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"><channel>{channel}{items}</channel></rss>'


def _page(article: Article) -> str:
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in article.paragraphs)
    title = html.escape(article.title)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title></head><body>'
        '<nav><a href="/">首页</a> <a href="/more">更多</a></nav>'
        f"<main><article><h1>{title}</h1>{text}<p>（{NOTICE}）</p></article></main>"
        f"<footer>{NOTICE}: nothing on this page is real. Contact · Imprint</footer></body></html>"
    )
