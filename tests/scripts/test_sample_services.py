"""The sample services answer the web tools over real HTTP with what they drew, and draw anew at every
start."""

from __future__ import annotations

import json
import threading

import pytest
from laploop.scripts.sample_services import NOTICE, SampleServices
from laploop.tools import Tool, builtin_tools


def tools(services: SampleServices) -> dict[str, Tool]:
    return {item.name: item for item in builtin_tools(web=services.web_config())}


@pytest.mark.parametrize("city", ["北京", "上海", "Beijing", "Paris", "São Paulo", "a/b?c#d"])
def test_weather_is_what_was_drawn(city: str) -> None:
    with SampleServices() as services:
        value = tools(services)["get_weather"].invoke({"city": city}).value
        drawn = services.weather(city)
        assert value["temperature_c"] == drawn.temperature_c and value["feels_like_c"] == drawn.feels_like_c
        assert (value["humidity_percent"], value["wind_kmph"]) == (drawn.humidity_percent, drawn.wind_kmph)
        assert value["description"] in (drawn.description_zh, drawn.description_en)


def test_the_two_cities_differ_and_either_may_be_hotter() -> None:
    hotter = set()
    for seed in range(40):
        services = SampleServices(seed)
        one, other = services.weather("北京"), services.weather("上海")
        difference = one.temperature_c - other.temperature_c
        assert one.feels_like_c - other.feels_like_c == difference, "what is felt must not contradict it"
        assert abs(difference) >= 2
        hotter.add(difference > 0)
    assert hotter == {True, False}


def test_one_city_has_one_weather_under_its_names() -> None:
    services = SampleServices()
    assert services.weather("北京") == services.weather("Beijing") == services.weather("北京市")


@pytest.mark.parametrize("topic", ["AI", "人工智能", "<b>&\"'", "a b"])
def test_news_chain_leads_to_pages_with_their_facts(topic: str) -> None:
    with SampleServices() as services:
        made = tools(services)
        items = json.loads(made["get_news"].invoke({"topic": topic}).content)
        drawn = services.news(topic)
        assert len(items) == 5 and [item["link"] for item in items] == [article.link for article in drawn]
        for item, article in zip(items, drawn, strict=True):
            read = made["read_url"].invoke({"url": item["link"]}).value
            assert article.fact in read["text"] and NOTICE in read["text"]
            assert not any(fact.fact in item["title"] for fact in drawn), "a fact may stand in its page only"
            assert not any(word in read["text"] for word in ("Imprint", "首页"))
        assert set(services.articles.values()) == set(drawn)


def test_values_are_drawn_anew_unless_seeded() -> None:
    def facts(seed: int | None) -> list[str]:
        with SampleServices(seed) as services:
            return [article.fact for article in services.news("AI")]

    assert facts(None) != facts(None)
    assert facts(7) == facts(7)


def test_read_url_may_read_these_pages_and_no_other_port() -> None:
    with SampleServices() as one, SampleServices() as other:
        read_url = tools(one)["read_url"]
        assert not read_url.invoke({"url": one.news("AI")[0].link}).is_error
        assert read_url.invoke({"url": other.news("AI")[0].link}).is_error


def test_unknown_pages_are_404() -> None:
    with SampleServices() as services:
        result = tools(services)["read_url"].invoke({"url": f"http://127.0.0.1:{services.port}/article/none"})
        assert result.is_error and "404" in result.content


def test_leaving_ends_the_server_and_its_threads() -> None:
    with SampleServices() as services:
        made, port = tools(services), services.port
        assert not made["get_weather"].invoke({"city": "北京"}).is_error
    assert port and "cannot reach" in made["get_weather"].invoke({"city": "北京"}).content
    assert not [thread for thread in threading.enumerate() if thread.name == "sample-services"]
    with pytest.raises(RuntimeError, match="not open"):
        _ = services.port


def test_many_clients_at_once() -> None:
    with SampleServices() as services:
        weather, results = tools(services)["get_weather"], []
        threads = [
            threading.Thread(target=lambda: results.append(weather.invoke({"city": "北京"}).value)) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 12 and all(value == results[0] for value in results)
