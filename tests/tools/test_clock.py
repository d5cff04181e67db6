"""get_time: now, here and elsewhere; wrong zones lead to right ones."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest
from laploop.tools import Tool, ToolError, builtin_tools
from laploop.tools.builtin.clock import find_zone


def get_time() -> Tool:
    return next(item for item in builtin_tools() if item.name == "get_time")


@pytest.mark.parametrize(
    "arguments", ["{}", '{"timezone": ""}', '{"timezone": "Asia/Shanghai"}', '{"timezone": "UTC"}']
)
def test_time_is_now_and_fields_agree(arguments: str) -> None:
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    value = get_time().invoke(arguments).value
    after = datetime.datetime.now(datetime.timezone.utc)
    moment = datetime.datetime.fromisoformat(value["iso"])
    assert before <= moment <= after
    assert value["iso"].startswith(f"{value['date']}T{value['time']}")
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    assert value["weekday"] == days[moment.weekday()]
    assert list(value) == ["iso", "date", "time", "weekday", "timezone"]


def test_zone_is_named() -> None:
    value = get_time().invoke({"timezone": "asia/shanghai"}).value
    assert value["timezone"] == "Asia/Shanghai" and value["iso"].endswith("+08:00")


@pytest.mark.parametrize(
    ("name", "hours"),
    [("UTC+8", 8), ("utc-03:30", -3.5), ("GMT+0530", 5.5), ("America/New York", None), ("Etc/UTC", 0)],
)
def test_spellings(name: str, hours: float | None) -> None:
    zone = find_zone(name)
    if hours is None:
        assert isinstance(zone, zoneinfo.ZoneInfo)
    else:
        assert zone.utcoffset(datetime.datetime(2024, 1, 1)) == datetime.timedelta(hours=hours)


@pytest.mark.parametrize(
    ("name", "near"),
    [("Asia/Beijing", "Asia/Shanghai"), ("北京", "Asia/Shanghai"), ("Asia/Tokio", "Asia/Tokyo"),
     ("London", "Europe/London"),     ("New York", "America/New_York"), ("Mumbai", "Asia/Kolkata"),
     ("America/New_Yrok", "America/New_York"), ("Mars", "Europe/London")],
)  # fmt: skip
def test_unknown_zone_names_near_ones(name: str, near: str) -> None:
    result = get_time().invoke({"timezone": name})
    assert result.is_error and "unknown time zone" in result.content and near in result.content


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/localtime", "Asia/", "UTC+99", "\x00", "a" * 5000, "UTC+8:99"]
)
def test_no_name_is_a_path(name: str) -> None:
    with pytest.raises(ToolError, match="unknown time zone"):
        find_zone(name)
