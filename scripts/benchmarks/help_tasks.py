"""The tasks of helps.py: questions over the built-in tools, their values drawn from a seed.

`make_tasks` gives those that are measured; `make_tuning_tasks` forty others, for trying things out: what was chosen
on these has never seen those.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laploop.scripts.demo import QUESTIONS
from laploop.scripts.sample_services import SampleServices

KINDS = ("article", "single", "parallel", "chain", "none")


@dataclass(frozen=True, slots=True)
class Task:
    """A question; the calls that it takes (name, and the arguments that matter), and what the answer has to state.

    `values`: each must stand in the answer; a tuple of texts: any of them.
    """

    kind: str
    question: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    values: tuple[Any, ...] = ()


class World:
    """What the tasks are about: services on loopback and a folder of files, their values drawn from one seed."""

    def __init__(self, seed: int, root: Path) -> None:
        self.services = SampleServices(seed=seed)
        self.root = root
        draw = random.Random(seed)  # noqa: S311 - sample data
        self.numbers = [draw.randint(13, 97) for _ in range(12)]
        self.files = {
            "harbour.txt": f"Report on the harbour.\nThe new crane cost {draw.randint(10_000, 99_999)} euros.\n",
            "orchard.txt": f"Report on the orchard.\nThe harvest was {draw.randint(10_000, 99_999)} kilograms.\n",
            "gongcheng.txt": f"桥梁工程记录。\n桥长{draw.randint(1_000, 9_999)}米。\n",
            "shuiku.txt": f"水库记录。\n今年蓄水{draw.randint(10_000, 99_999)}吨。\n",
        }
        for name, text in self.files.items():
            (root / name).write_text(text, encoding="utf-8")

    def number_in(self, name: str) -> str:
        """The number that stands in a file and nowhere else."""
        return str(re.findall(r"\d+", self.files[name])[0])

    def degrees(self, city: str) -> int:
        """What get_weather says of a city."""
        return self.services.weather(city).temperature_c

    def humidity(self, city: str) -> int:
        """What get_weather says of a city's air."""
        return self.services.weather(city).humidity_percent


def make_tasks(world: World) -> list[Task]:
    """The first article's questions, then ten tasks a kind, Chinese and English in turn. The services must be open."""
    return [*_article(world), *_single(world), *_parallel(world), *_chain(world), *_none()]


def _weather(*cities: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(("get_weather", {"city": city}) for city in cities)


def _reading(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("read_file", {"path": name}),)


def _article(world: World) -> list[Task]:
    hotter, news, two_things, clock, direct = QUESTIONS
    article, t = world.services.news("AI")[0], world.degrees
    return [
        Task("article", hotter, _weather("北京", "上海"), (t("北京"), t("上海"))),
        Task("article", news, (("get_news", {}), ("read_url", {"url": article.link})), (article.fact,)),
        Task("article", two_things, (*_weather("上海"), ("calculator", {})), (t("上海"), 23 * 17)),
        Task("article", clock, (("get_time", {}),)),
        Task("article", direct, (), (2,)),  # with the calculator or without
    ]


def _single(world: World) -> list[Task]:
    n = world.numbers
    return [
        Task("single", "北京今天多少度？", _weather("北京"), (world.degrees("北京"),)),
        Task("single", "What is the temperature in Oslo today?", _weather("Oslo"), (world.degrees("Oslo"),)),
        Task("single", f"{n[0]} 乘以 {n[1]} 等于多少？", (("calculator", {}),), (n[0] * n[1],)),
        Task("single", f"How much is {n[2]} times {n[3]}?", (("calculator", {}),), (n[2] * n[3],)),
        Task(
            "single", "gongcheng.txt 里写的桥长是多少米？", _reading("gongcheng.txt"),
            (world.number_in("gongcheng.txt"),),
        ),
        Task(
            "single", "According to harbour.txt, how many euros did the crane cost?", _reading("harbour.txt"),
            (world.number_in("harbour.txt"),),
        ),
        Task("single", "成都今天的湿度是多少？", _weather("成都"), (world.services.weather("成都").humidity_percent,)),
        Task(
            "single", "How humid is it in Turin today, in percent?", _weather("Turin"),
            (world.services.weather("Turin").humidity_percent,),
        ),
        Task("single", "有什么关于足球的新闻？列出第一条的标题。", (("get_news", {}),)),
        Task(
            "single", "Which files are in the folder? Name them.", (("list_files", {}),),
            ("harbour.txt", "orchard.txt"),
        ),
    ]  # fmt: skip


def _parallel(world: World) -> list[Task]:
    n, t = world.numbers, world.degrees
    files = (("read_file", {"path": "harbour.txt"}), ("read_file", {"path": "orchard.txt"}))
    return [
        Task("parallel", "查一下苏州和长沙现在的气温，比较一下。", _weather("苏州", "长沙"), (t("苏州"), t("长沙"))),
        Task(
            "parallel", "What is the weather in Oslo and in Porto?", _weather("Oslo", "Porto"),
            (t("Oslo"), t("Porto")),
        ),
        Task(
            "parallel", "杭州、成都和西安今天各多少度？", _weather("杭州", "成都", "西安"),
            (t("杭州"), t("成都"), t("西安")),
        ),
        Task(
            "parallel", "Compare today's temperatures in Leeds, Quito and Turin.", _weather("Leeds", "Quito", "Turin"),
            (t("Leeds"), t("Quito"), t("Turin")),
        ),
        Task(
            "parallel", f"长沙现在几度？再帮我算一下 {n[4]} 乘以 {n[5]}。",
            (*_weather("长沙"), ("calculator", {})), (t("长沙"), n[4] * n[5]),
        ),
        Task(
            "parallel", f"How warm is Hobart today, and how much is {n[6]} times {n[7]}?",
            (*_weather("Hobart"), ("calculator", {})), (t("Hobart"), n[6] * n[7]),
        ),
        Task("parallel", "南京和厦门今天的气温分别是多少？", _weather("南京", "厦门"), (t("南京"), t("厦门"))),
        Task(
            "parallel", "Read harbour.txt and orchard.txt and give me the number in each.", files,
            (world.number_in("harbour.txt"), world.number_in("orchard.txt")),
        ),
        Task(
            "parallel", "武汉今天多少度？gongcheng.txt 里的桥长是多少？",
            (*_weather("武汉"), ("read_file", {"path": "gongcheng.txt"})),
            (t("武汉"), world.number_in("gongcheng.txt")),
        ),
        Task(
            "parallel", "What is the temperature in Porto, and what does orchard.txt say about the harvest?",
            (*_weather("Porto"), ("read_file", {"path": "orchard.txt"})), (t("Porto"), world.number_in("orchard.txt")),
        ),
    ]  # fmt: skip


def _chain(world: World) -> list[Task]:
    def news(question: str, topic: str, item: int = 0) -> Task:
        article = world.services.news(topic)[item]
        return Task("chain", question, (("get_news", {}), ("read_url", {"url": article.link})), (article.fact,))

    n = world.numbers
    return [
        news("找找量子计算的新闻，打开第一条，正文里的数字是多少？", "量子计算"),
        news("Find news about AI and read me the first article.", "AI"),
        news("搜索关于机器人的新闻，打开第一条，告诉我里面的数字。", "机器人"),
        news("Look up news about robots, open the first link, and tell me the number in the text.", "robots"),
        Task(
            "chain", f"先查北京的气温，再用计算器把它乘以 {n[8]}。", (*_weather("北京"), ("calculator", {})),
            (world.degrees("北京") * n[8],),
        ),
        Task(
            "chain", f"Get the temperature in Oslo, then use the calculator to multiply it by {n[9]}.",
            (*_weather("Oslo"), ("calculator", {})), (world.degrees("Oslo") * n[9],),
        ),
        Task(
            "chain", "哪个文件里写了水库？读一读，告诉我今年蓄水多少吨。", (("read_file", {"path": "shuiku.txt"}),),
            (world.number_in("shuiku.txt"),),
        ),
        Task(
            "chain", "One of the files is about an orchard. Find it, and tell me the harvest in kilograms.",
            (("read_file", {"path": "orchard.txt"}),), (world.number_in("orchard.txt"),),
        ),
        Task(
            "chain", f"gongcheng.txt 里的桥长乘以 {n[10]} 是多少？请用计算器。",
            (("read_file", {"path": "gongcheng.txt"}), ("calculator", {})),
            (int(world.number_in("gongcheng.txt")) * n[10],),
        ),
        Task(
            "chain", f"Read harbour.txt, then multiply the cost of the crane by {n[11]} with the calculator.",
            (("read_file", {"path": "harbour.txt"}), ("calculator", {})),
            (int(world.number_in("harbour.txt")) * n[11],),
        ),
    ]  # fmt: skip


def _none() -> list[Task]:
    return [
        Task("none", "你好！请用一句话介绍你自己。"),
        Task("none", "Hello! Who are you?"),
        Task("none", "把“谢谢”翻译成英语。", (), (("Thank", "thank"),)),
        Task("none", "Translate the word 'water' into French.", (), (("eau",),)),
        Task("none", "《红楼梦》的作者是谁？", (), (("曹雪芹",),)),
        Task("none", "Who wrote Romeo and Juliet?", (), (("Shakespeare",),)),
        Task("none", "一年有多少个月？", (), (("12", "十二"),)),
        Task("none", "How many days are there in a week?", (), (("7", "seven", "Seven"),)),
        Task("none", "用“春天”写一个短句子。", (), (("春",),)),
        Task("none", "Give me a synonym for 'happy'."),
    ]


def make_tuning_tasks(world: World) -> list[Task]:
    """Forty other tasks, kind by kind, Chinese and English in turn. The services must be open."""
    n, t, h = world.numbers, world.degrees, world.humidity
    quantities = {name: world.number_in(name) for name in world.files}

    def news(question: str, topic: str, item: int = 0) -> Task:
        article = world.services.news(topic)[item]
        return Task("chain", question, (("get_news", {}), ("read_url", {"url": article.link})), (article.fact,))

    single = [
        Task("single", "广州现在的风速是多少？", _weather("广州"), (world.services.weather("广州").wind_kmph,)),
        Task("single", "How cold is it in Bergen right now?", _weather("Bergen"), (t("Bergen"),)),
        Task("single", f"帮我算一下 {n[0]} 减去 {n[1]}。", (("calculator", {}),), (n[0] - n[1],)),
        Task("single", f"What is {n[2]} squared?", (("calculator", {}),), (n[2] ** 2,)),
        Task("single", "打开 shuiku.txt，告诉我蓄水量。", _reading("shuiku.txt"), (quantities["shuiku.txt"],)),
        Task(
            "single", "How big was the harvest in orchard.txt?", _reading("orchard.txt"), (quantities["orchard.txt"],)
        ),
        Task("single", "今天是星期几？", (("get_time", {}),)),
        Task("single", "What time is it?", (("get_time", {}),)),
        Task("single", "找几条关于电影的新闻。", (("get_news", {}),)),
        Task("single", "Show me today's headlines about tennis.", (("get_news", {}),)),
    ]
    parallel = [
        Task("parallel", "广州和深圳现在谁更冷？", _weather("广州", "深圳"), (t("广州"), t("深圳"))),
        Task("parallel", "Is it warmer in Bergen or in Lyon?", _weather("Bergen", "Lyon"), (t("Bergen"), t("Lyon"))),
        Task(
            "parallel",
            "查一下天津、重庆、青岛三地的湿度。",
            _weather("天津", "重庆", "青岛"),
            (h("天津"), h("重庆"), h("青岛")),
        ),
        Task(
            "parallel",
            "Give me the humidity in Lyon, Cusco and Perth.",
            _weather("Lyon", "Cusco", "Perth"),
            (h("Lyon"), h("Cusco"), h("Perth")),
        ),
        Task(
            "parallel",
            f"现在几点？另外帮我算 {n[3]} 乘以 {n[4]}。",
            (("get_time", {}), ("calculator", {})),
            (n[3] * n[4],),
        ),
        Task(
            "parallel",
            f"What's the temperature in Perth, and what is {n[5]} times {n[6]}?",
            (*_weather("Perth"), ("calculator", {})),
            (t("Perth"), n[5] * n[6]),
        ),
        Task(
            "parallel",
            "把 gongcheng.txt 和 shuiku.txt 里的数字都告诉我。",
            (*_reading("gongcheng.txt"), *_reading("shuiku.txt")),
            (quantities["gongcheng.txt"], quantities["shuiku.txt"]),
        ),
        Task(
            "parallel",
            f"I need two products: {n[7]} times {n[8]}, and {n[9]} times {n[10]}.",
            (("calculator", {}), ("calculator", {})),
            (n[7] * n[8], n[9] * n[10]),
        ),
        Task(
            "parallel",
            "深圳的气温是多少？harbour.txt 里的吊车花了多少钱？",
            (*_weather("深圳"), *_reading("harbour.txt")),
            (t("深圳"), quantities["harbour.txt"]),
        ),
        Task(
            "parallel",
            "How humid is Cusco, and what number is in harbour.txt?",
            (*_weather("Cusco"), *_reading("harbour.txt")),
            (h("Cusco"), quantities["harbour.txt"]),
        ),
    ]
    chain = [
        news("看看航天新闻，把第一条的原文打开，里面写的数字是多少？", "航天"),
        news("Search the news for chess and tell me the figure in the text of the first article.", "chess"),
        news("查电影新闻，读一读第二条，告诉我里面的数字。", "电影", 1),
        news("Get news about solar power, open the second item, and tell me its number.", "solar power", 1),
        Task(
            "chain",
            f"查出广州的湿度，再用计算器乘以 {n[11]}。",
            (*_weather("广州"), ("calculator", {})),
            (h("广州") * n[11],),
        ),
        Task(
            "chain",
            f"Look up the humidity in Lyon and multiply it by {n[0]}; use the calculator.",
            (*_weather("Lyon"), ("calculator", {})),
            (h("Lyon") * n[0],),
        ),
        Task("chain", "有个文件提到了一座桥，桥有多长？", _reading("gongcheng.txt"), (quantities["gongcheng.txt"],)),
        Task(
            "chain",
            "Some file mentions a crane. Find out what it cost.",
            _reading("harbour.txt"),
            (quantities["harbour.txt"],),
        ),
        Task(
            "chain",
            f"用计算器把 shuiku.txt 里的蓄水量乘以 {n[1]}。",
            (*_reading("shuiku.txt"), ("calculator", {})),
            (int(quantities["shuiku.txt"]) * n[1],),
        ),
        Task(
            "chain",
            f"Take the harvest in orchard.txt and multiply it by {n[2]} with the calculator.",
            (*_reading("orchard.txt"), ("calculator", {})),
            (int(quantities["orchard.txt"]) * n[2],),
        ),
    ]
    none = [
        Task("none", "早上好！"),
        Task("none", "Thanks, that was helpful!"),
        Task("none", "“我爱你”用法语怎么说？", (), (("aime",),)),
        Task("none", "How do you say 'bread' in German?", (), (("Brot", "brot"),)),
        Task("none", "中国的首都是哪座城市？", (), (("北京",),)),
        Task("none", "What is the capital of Japan?", (), (("Tokyo",),)),
        Task("none", "写一首关于月亮的四行小诗。", (), (("月",),)),
        Task("none", "Write a polite sentence to decline an invitation."),
        Task("none", "“高兴”的反义词是什么？"),
        Task("none", "Explain in one sentence what a noun is.", (), (("noun", "Noun"),)),
    ]
    return [*single, *parallel, *chain, *none]  # fmt: skip
