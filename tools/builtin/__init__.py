"""The tools that come with laploop: weather, news, web pages, the clock, a calculator, and reading files.

Their descriptions are short on purpose: they are part of every prompt, and a CPU reads about 40 tokens a
second.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..definition import Tool
    from ..web import WebConfig


def builtin_tools(*, root: Path | None = None, web: WebConfig | None = None) -> list[Tool]:
    """Return get_weather, get_news, read_url, get_time, calculator, list_files, search_files and read_file.

    Args:
        root: the only folder that the file tools can see; by default the working directory as it is now.
        web: services and limits of the web tools; by default what the environment says
            (`WebConfig.from_env`).

    Raises:
        ToolError: `root` is not a folder, or a web setting cannot work.
    """
    from ..web import WebConfig
    from .calculator import calculator_tool
    from .clock import clock_tool
    from .files import file_tools
    from .news import news_tool
    from .weather import weather_tool
    from .web_page import web_page_tool

    web = WebConfig.from_env() if web is None else web
    return [
        weather_tool(web),
        news_tool(web),
        web_page_tool(web),
        clock_tool(),
        calculator_tool(),
        *file_tools(Path.cwd() if root is None else root),
    ]
