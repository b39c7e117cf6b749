"""Make ``agentlib/fonts/agent-lab-sans.otf``: the few hanzi that the charts need, on any machine.

    python tools/make_font.py [NotoSansCJK-Regular.ttc]

Debian's package ``fonts-noto-cjk`` has the source font. The result holds Latin letters, the characters of the
message files, the lessons and WARES, and as many of ``characters.txt``, from its start, as fit into 400 KB.
The same input gives the same bytes. (``characters.txt``: hanzi by how often they stand in the words of jieba's
dictionary, weighted by the words' frequency.)
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from fontTools import subset  # type: ignore[import-untyped]
from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
FONTS = ROOT / "agentlib" / "fonts"
SOURCE = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"
FAMILY = "Agent Lab Sans"
"""A name of its own: the licence reserves the original's."""

LATIN = [
    *range(0x20, 0x7F),
    *range(0xA0, 0x180),
    *map(ord, "–—‘’“”•…‰€←↑→↓−×÷≈≠≤≥∞□■▲▶▼◀●○✓✗、。《》「」【】（），：；！？％￥～·"),
]
WARES = """
键盘鼠标显示器耳机打印机平板笔记本摄像头音箱充电器数据线硬盘路由器手机电脑相机电视冰箱洗衣机空调服装鞋帽箱包食品
饮料家具玩具图书文具运动户外化妆护肤母婴水果蔬菜肉蛋奶咖啡茶叶烟酒零食厨房浴室清洁灯具五金汽车配件手表眼镜珠宝
首饰宠物药品保健乐器礼品办公耗材墨盒鼠标垫键帽投影仪扫描仪交换机服务器内存主板显卡电源机箱风扇转接头拓展坞优盘
麦克风手柄其他未知合计
"""
LARGEST = 400_000


def wanted() -> set[int]:
    """The characters that have to be in the font."""
    texts = [WARES]
    texts += [p.read_text(encoding="utf-8") for p in sorted((ROOT / "agentlib" / "messages").glob("*.toml"))]
    texts += [p.read_text(encoding="utf-8") for p in sorted((ROOT / "notebooks" / "source").glob("*.md"))]
    return {*LATIN, *(ord(c) for t in texts for c in t if c.isprintable())}


def common() -> list[int]:
    """The characters that are good to have, the most frequent first."""
    lines = (FONTS / "characters.txt").read_text(encoding="utf-8").splitlines()
    return [ord(c) for line in lines if not line.startswith("#") for c in line]


def make(source: str, characters: set[int]) -> bytes:
    """The subset of ``source`` with these characters, without hints and layout rules."""
    font = TTFont(source, fontNumber=_index(source), recalcTimestamp=False)
    options = subset.Options(
        hinting=False, layout_features=["kern"], drop_tables=["BASE", "DSIG", "GSUB", "VORG", "vhea", "vmtx"]
    )
    options.name_IDs, options.name_languages = [0, 13, 14], [0x409]
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    for number, value in {1: FAMILY, 2: "Regular", 3: f"{FAMILY} 1", 4: FAMILY, 6: FAMILY.replace(" ", "")}.items():
        font["name"].setName(value, number, 3, 1, 0x409)
    cff = font["CFF "].cff
    cff.fontNames = [FAMILY.replace(" ", "")]
    cff.topDictIndex[0].FamilyName = cff.topDictIndex[0].FullName = FAMILY
    out = io.BytesIO()
    font.save(out)
    return out.getvalue()


def _index(source: str) -> int:
    """Which font of the collection is the simplified Chinese one."""
    for number in range(10):
        font = TTFont(source, fontNumber=number, lazy=True)
        if font["name"].getDebugName(1) == "Noto Sans CJK SC":
            return number
    raise SystemExit(f"{source}: no Noto Sans CJK SC in it")


def main() -> None:
    """Write the font; leave out the rarest of the common characters until it is small enough."""
    source = sys.argv[1] if len(sys.argv) > 1 else SOURCE
    needed, extra = wanted(), common()
    while len(data := make(source, {*needed, *extra})) > LARGEST:
        extra = extra[:-50]
    (FONTS / "agent-lab-sans.otf").write_bytes(data)
    print(f"{len(data):,} bytes; {len(needed)} characters needed, {len(extra)} common ones added")


if __name__ == "__main__":
    main()
