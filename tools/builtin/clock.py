"""get_time: date and time now, here or in another time zone."""

from __future__ import annotations

import datetime
import difflib
import re
import zoneinfo
from typing import Annotated

from ..definition import Tool, tool
from ..errors import ToolError

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_OFFSET = re.compile(r"(?:UTC|GMT)\s*([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
# What models write when they mean the zone of this machine.
_LOCAL = ("", "local", "localtime", "local time", "default", "system", "本地")
# Cities that people ask for and that the time zone database names differently; used for hints only.
_NEIGHBOURS = {
    "beijing": "Asia/Shanghai", "北京": "Asia/Shanghai", "上海": "Asia/Shanghai", "china": "Asia/Shanghai",
    "mumbai": "Asia/Kolkata", "delhi": "Asia/Kolkata", "osaka": "Asia/Tokyo", "东京": "Asia/Tokyo",
    "伦敦": "Europe/London", "巴黎": "Europe/Paris", "纽约": "America/New_York",
    "washington": "America/New_York", "boston": "America/New_York", "seattle": "America/Los_Angeles",
    "san_francisco": "America/Los_Angeles", "munich": "Europe/Berlin",
}  # fmt: skip


def clock_tool() -> Tool:
    """Return get_time."""

    @tool(group="time")
    def get_time(
        timezone: Annotated[str, "IANA name, e.g. Asia/Tokyo; default: local"] = "",
    ) -> dict[str, str]:
        """Current date and time. Returns date, time, weekday and time zone."""
        name = timezone.strip()
        here = name.lower() in _LOCAL
        now = datetime.datetime.now().astimezone() if here else datetime.datetime.now(find_zone(name))
        return {
            "iso": now.isoformat(timespec="seconds"),
            "date": now.strftime("%Y-%m-%d"),
            "time": now.strftime("%H:%M:%S"),
            "weekday": _WEEKDAYS[now.weekday()],  # strftime("%A") would follow the locale
            "timezone": getattr(now.tzinfo, "key", None) or str(now.tzinfo),
        }

    return get_time


def find_zone(name: str) -> datetime.tzinfo:
    """Return the zone of an IANA name (in any case) or of "UTC+8".

    Raises:
        ToolError: no such zone; names near ones.
    """
    name = name.strip()
    zones = {zone.lower(): zone for zone in zoneinfo.available_timezones()}
    if found := zones.get(name.lower().replace(" ", "_")):
        return zoneinfo.ZoneInfo(found)
    if offset := _OFFSET.fullmatch(name):
        delta = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if delta < datetime.timedelta(hours=24):
            return datetime.timezone(delta if offset[1] == "+" else -delta)
    if not zones:
        raise ToolError("this system has no time zone data; leave timezone out, or install the tzdata package")
    raise ToolError(
        f"unknown time zone {name[:60]!r}; near: {', '.join(_near(name, zones))}. Leave it out for local time"
    )


def _near(name: str, zones: dict[str, str]) -> list[str]:
    city = name.lower().replace(" ", "_").rsplit("/", 1)[-1]
    found = [_NEIGHBOURS[city]] if city in _NEIGHBOURS else []
    by_city = {zone.rsplit("/", 1)[-1]: full for zone, full in sorted(zones.items(), reverse=True)}
    found += [by_city[match] for match in difflib.get_close_matches(city, by_city, n=3, cutoff=0.7)]
    found += [zones[match] for match in difflib.get_close_matches(name.lower(), zones, n=3, cutoff=0.7)]
    return list(dict.fromkeys(found))[:3] or ["Asia/Shanghai", "Europe/London", "America/New_York"]
