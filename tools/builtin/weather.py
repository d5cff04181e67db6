"""get_weather: current weather of a city from wttr.in or a service that speaks its `?format=j1`."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any
from urllib.parse import quote

from ..definition import Tool, tool
from ..errors import WebError
from ..web import WebConfig, fetch

_CJK = re.compile(r"[\u3400-\u9fff]")
_MAX_CITY_CHARS = 100
_WAY_OUT = "Set LAPLOOP_WEATHER_URL to a service that can be reached, or answer without it."


def weather_tool(web: WebConfig) -> Tool:
    """Return get_weather, asking the service of `web`."""

    @tool(effects={"read", "network"}, group="web")
    def get_weather(city: Annotated[str, "City name only, e.g. 北京 or Paris"]) -> dict[str, Any]:
        """Current weather of one city. Returns temperature in Celsius, humidity, wind and sky."""
        city = city.strip()
        if not city or len(city) > _MAX_CITY_CHARS:
            raise WebError("give the name of one city, such as 北京 or Paris")
        chinese = bool(_CJK.search(city))
        language = "&lang=zh" if chinese else ""
        url = f"{web.weather_url.rstrip('/')}/{quote(city, safe='')}?format=j1{language}"
        page = fetch(url, web, way_out=_WAY_OUT)
        return {"city": city, **_current(page.body, city, chinese)}

    return get_weather


def _current(body: bytes, city: str, chinese: bool) -> dict[str, Any]:
    """Return the figures of `current_condition`; wttr.in writes numbers as strings."""
    try:
        now = json.loads(body)["current_condition"][0]
        described = (now.get("lang_zh") if chinese else None) or now["weatherDesc"]
        return {
            "temperature_c": _number(now["temp_C"]),
            "feels_like_c": _number(now["FeelsLikeC"]),
            "humidity_percent": _number(now["humidity"]),
            "wind_kmph": _number(now["windspeedKmph"]),
            "description": str(described[0]["value"]).strip(),
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise WebError(f"the weather service has no data for {city!r}; check the name of the city") from error


def _number(text: Any) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number
