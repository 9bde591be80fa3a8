"""`topics bench compare`: the same work on other servers, in alternating rounds of one run.

Method. Each peer is started by this program on a free port, with its data in a temporary directory,
and killed afterwards. The load comes from one program of ours (`load`) that speaks each peer's
protocol in bytes made in advance; it shares the two cores with the server. A round does every row
on every peer, and the order of the peers rotates, so that a slow minute of the machine does not
hit the same peer each time. Records have 100 bytes of JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from topics.bench import table
from topics.bench.bench import parser
from topics.bench.compare import report
from topics.bench.compare.peer import Peer
from topics.bench.compare.peers import PEERS
from topics.bench.compare.rows import OURS, ROWS, Comparison, Measured, floor, one_round

FULL = (1.0, 2.0, 5)
QUICK = (0.2, 0.3, 1)
"""Scale of what is counted, seconds of what is timed, rounds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compare and print; 2 if a row or a peer is not known."""
    chosen = _parser().parse_args(argv)
    for kind, asked, known in (("row", chosen.rows, ROWS), ("peer", chosen.peers, PEERS)):
        for name in asked:
            if name not in known:
                print(f"no {kind} {name!r}; {kind}s: {', '.join(known)}", file=sys.stderr)
                return 2
    wanted = {
        name: PEERS[name]
        for name in PEERS
        if name == OURS or name in chosen.peers or not chosen.peers
    }
    absent = {name: gone for name, peer in wanted.items() if (gone := peer.missing()) is not None}
    present = [peer for name, peer in wanted.items() if name not in absent]
    measured = {name: Measured(ROWS[name]) for name in chosen.rows or ROWS}
    scale, seconds, rounds = QUICK if chosen.quick else FULL
    floors: dict[str, list[float]] = {}
    with table.progress() as say:
        scale, seconds = (chosen.scale, 2 * chosen.scale) if chosen.scale else (scale, seconds)
        bench = Comparison(chosen.dir, scale, 1, say, seconds)
        for number in range(chosen.rounds or rounds):
            _compare(bench, number, present, measured)
            for what, took in floor(bench).items():
                floors.setdefault(what, []).append(took)
    settings = {
        p.name: (p.sync_settings(synced=False), p.sync_settings(synced=True)) for p in present
    }
    found = (list(measured.values()), floors, settings, absent)
    if chosen.json:
        print(report.as_json(*found))
    else:
        report.print_table(*found)
    if chosen.plot is not None:
        try:
            made = report.draw(found[0], list(settings), chosen.plot)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        print("drawn:", *made, file=sys.stderr)
    return 0


def _compare(
    bench: Comparison, number: int, peers: Sequence[Peer], measured: dict[str, Measured]
) -> None:
    """One round; the peers begin with another one each time."""
    start = number % len(peers)
    rows = [one.row for one in measured.values()]
    for peer in [*peers[start:], *peers[:start]]:
        for row, value in one_round(bench, peer, rows):
            measured[row.name].add(peer.name, value)


def _parser() -> argparse.ArgumentParser:
    about = "The same work on the servers that people use today, in one run."
    made = parser("compare", about, ROWS)
    made.add_argument(
        "--peers",
        type=lambda text: [peer for peer in text.split(",") if peer],
        default=[],
        help=f"only these beside {OURS}: {', '.join(name for name in PEERS if name != OURS)}",
    )
    made.add_argument("--rounds", type=int, default=0, help="how often each row is measured")
    made.add_argument("--plot", type=Path, help="directory for compare.png and compare.svg")
    return made
