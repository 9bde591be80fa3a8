"""The comparison for people and for programs: a table, JSON, and a plot."""

from __future__ import annotations

import json
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from topics.bench import table
from topics.bench.compare.rows import OURS, Measured

NOT_DRAWN = "a plot needs matplotlib: pip install 'topics[demo]'"
_WIDTH = 180


def print_table(
    measured: Sequence[Measured],
    floor: Mapping[str, Sequence[float]],
    settings: Mapping[str, Sequence[str]],
    absent: Mapping[str, str],
) -> None:
    shown = Table(caption=table.machine(), pad_edge=False)
    shown.add_column("row")
    shown.add_column("what", overflow="fold")
    shown.add_column("unit")
    for peer in settings:
        shown.add_column(peer, justify="right")
    for one in measured:
        cells = [_cell(one, peer) for peer in settings]
        shown.add_row(one.row.name, one.row.what, one.row.unit, *cells)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(shown)
    console.print(
        "Medians, the lowest and the highest round in brackets. Behind x: how many times better "
        "topics is; below 1, the other server is better."
    )
    for peer, (plain, synced) in settings.items():
        console.print(f"{peer}: {plain}; rows named sync: {synced}", highlight=False)
    for what, times in floor.items():
        console.print(f"this machine: {what}, p50 {table.number(statistics.median(times))} us")
    for peer, wanted in absent.items():
        console.print(f"{peer} is left out: needs {wanted}")


def _cell(one: Measured, peer: str) -> str:
    median = one.median(peer)
    if median is None:
        return "-"
    values = one.values[peer]
    spread = f" ({table.number(min(values))}-{table.number(max(values))})" if values[1:] else ""
    ratio = one.ratio(OURS, peer)
    behind = f" x{ratio:.2g}" if ratio is not None and peer != OURS else ""
    return table.number(median) + spread + behind


def as_json(
    measured: Sequence[Measured],
    floor: Mapping[str, Sequence[float]],
    settings: Mapping[str, Sequence[str]],
    absent: Mapping[str, str],
) -> str:
    rows = [
        {
            "row": one.row.name,
            "what": one.row.what,
            "unit": one.row.unit,
            "more_is_better": one.row.more_is_better,
            "values": one.values,
            "median": {peer: one.median(peer) for peer in one.values},
            "ratio": {peer: one.ratio(OURS, peer) for peer in one.values if peer != OURS},
        }
        for one in measured
    ]
    found: dict[str, Any] = {
        "rows": rows,
        "floor_us": {what: statistics.median(times) for what, times in floor.items()},
        "settings": {peer: {"plain": p, "synced": s} for peer, (p, s) in settings.items()},
        "left_out": dict(absent),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    return json.dumps(found, indent=2)


def draw(measured: Sequence[Measured], peers: Sequence[str], directory: Path) -> list[Path]:
    """`compare.png` and `compare.svg`: how many times better topics is, row by row."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  an extra, and slow to import
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise RuntimeError(NOT_DRAWN) from None
    mpl.rcParams["svg.hashsalt"] = "topics"
    others = [peer for peer in peers if peer != OURS]
    rows = [one for one in measured if any(one.ratio(OURS, peer) for peer in others)]
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / max(1, len(others))
    for at, peer in enumerate(others):
        places = [row + at * height for row in range(len(rows))]
        ratios = [one.ratio(OURS, peer) for one in rows]
        widths = [0.0 if ratio is None else ratio - 1 for ratio in ratios]
        bars = axes.barh(places, widths, height, left=1, label=peer)
        labels = ["" if ratio is None else f"{ratio:.2g}" for ratio in ratios]
        axes.bar_label(bars, labels, padding=2, fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(rows))])
    axes.set_yticklabels([one.row.what for one in rows])
    axes.invert_yaxis()
    axes.set_xlabel("how many times better topics is (left of 1: the other server is better)")
    axes.grid(axis="x", which="major", alpha=0.3)
    axes.margins(x=0.12)
    axes.legend(loc="best", frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    directory.mkdir(parents=True, exist_ok=True)
    made = [directory / "compare.png", directory / "compare.svg"]
    for path in made:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return made
