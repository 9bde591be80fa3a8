"""What a crash may leave of a topic: the states it went through, and how each would come back.

A `Track` keeps every state since the last one known to be durable. The log of a topic is a
sequence of such states; a process that dies may lose what was not acknowledged, a power cut may
also lose what was not synced, and neither may make up a state that never was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.property.model.observe import Seen, differences, let_keys_expire
from tests.property.model.oracle import Fate, KeyEntry, Model

How = frozenset[str]
CLEAN: How = frozenset({"clean"})


@dataclass
class Track:
    states: list[Model]
    topic_id: int = 0
    durable: int = 0
    acked: int = 0
    may_be_absent: bool = False  # it is being created or dropped
    newest_version: int = 0  # delete versions never repeat
    keys_ever: dict[str, list[KeyEntry]] = field(default_factory=dict)
    cursors_ever: dict[str, set[int]] = field(default_factory=dict)

    @property
    def now(self) -> Model:
        return self.states[-1]

    def next(self) -> Model:
        """A new state to be changed by the operation under way."""
        self.states.append(self.now.copy())
        return self.now

    def expire(self, now_ms: int) -> None:
        """Retention as a change of its own."""
        expired = self.now.copy()
        if expired.expire(now_ms):
            self.states.append(expired)

    def acknowledge(self) -> None:
        self.acked = len(self.states) - 1

    def sync(self) -> None:
        self.acked = self.durable = len(self.states) - 1

    def sync_all_but_newest(self) -> None:
        """The newest state is that of an operation which the engine has not begun."""
        self.acked = self.durable = len(self.states) - 2

    def remember(self) -> None:
        """Keep what may come back once more although it was let go: expired keys, old cursors."""
        for key, entry in self.now.keys.items():
            known = self.keys_ever.setdefault(key, [])
            if entry not in known:
                known.append(entry)
        for name, (seq, _) in self.now.cursors.items():
            self.cursors_ever.setdefault(name, set()).add(seq)

    def survivors(self, how: How) -> list[Model]:
        """States that may come back, the likeliest first."""
        if how == CLEAN:
            return self.states[-1:]
        oldest = self.durable if "power" in how else self.acked
        return self.states[oldest:][::-1]

    def recover(self, seen: Seen, how: How) -> Model:
        """The state that came back; AssertionError when it is none that may."""
        complaints = []
        for candidate in self.survivors(how):
            state = candidate.copy()
            problems = list(self._come_back(state, seen, how))
            if not problems:
                return state
            complaints.append("; ".join(problems))
        raise AssertionError(
            f"after {'+'.join(sorted(how))} the topic is in no state it may be in:\n  "
            + "\n  ".join(complaints)
        )

    def _come_back(self, state: Model, seen: Seen, how: How) -> Iterable[str]:
        handed_out = self.states[self.acked].head
        if state.cfg.durability == "ephemeral":
            yield from _restart_ephemeral(state, seen, how, handed_out)
        else:
            if state.cfg.durability == "disk":
                yield from _skip_reserved(state, seen, how, handed_out)
            _lose_volatile(state, seen)
            if not state.version_is_logged:
                state.delete_version = seen.delete_version
        if state.ts_is_soft:
            state.ts = min(state.ts, seen.ts)
            state.ts_is_soft = False
        self._adopt_cursors(state, seen)
        self._adopt_keys(state, seen)
        state.version_is_logged = True
        yield from differences(seen, state)

    def _adopt_cursors(self, state: Model, seen: Seen) -> None:
        """A cursor that was last moved in memory only may be anywhere it ever was, or gone."""
        is_ephemeral = state.cfg.durability == "ephemeral"
        if is_ephemeral:  # and may come back once the topic is logged again
            state.soft_cursors = frozenset(self.cursors_ever)
        for name in state.soft_cursors:
            state.cursors.pop(name, None)
            found = seen.cursors.get(name)
            if found is not None and found[0] in self.cursors_ever.get(name, ()):
                state.cursors[name] = found
        if not is_ephemeral:
            state.soft_cursors = frozenset()

    def _adopt_keys(self, state: Model, seen: Seen) -> None:
        """Keys of lost writes are gone; expired ones may be back for a while."""
        if state.cfg.durability == "ephemeral":
            state.keys.clear()
        let_keys_expire(state, seen)
        for key, entry in list(state.keys.items()):
            is_blurred = entry.first in state.blurred and key not in seen.keys
            if is_blurred or state.fate.get(entry.first) == "crash":
                del state.keys[key]
        for key, entry in seen.keys.items():
            may_be_known = entry in self.keys_ever.get(key, ()) and (
                entry.first in state.blurred or state.fate.get(entry.first, "crash") != "crash"
            )
            if may_be_known and key not in state.keys:
                state.keys[key] = entry
        state.keys = {key: state.keys[key] for key in seen.keys if key in state.keys} | state.keys


def _skip_reserved(state: Model, seen: Seen, how: How, handed_out: int) -> Iterable[str]:
    """Seqs up to the ceiling are skipped: silently after a kill, announced after a power cut."""
    if seen.head < handed_out:
        yield f"head {seen.head} is below {handed_out}, which was handed out"
    if how == CLEAN:
        return
    kind: Fate = "crash" if "power" in how else "skip"
    if len(how) > 1 and seen.head > state.head and seen.fate[seen.head] == "skip":
        kind = "skip"  # noted by a recovery that a power cut ended
    state.hole(seen.head, kind)


def _lose_volatile(state: Model, seen: Seen) -> None:
    """Records of an ephemeral life are gone; what was dead already may count as that too."""
    if state.volatile:
        state.ts = min(state.ts, seen.ts)
        _lower_cap_floor(state, seen)
    state.blurred |= {seq for seq in state.volatile if state.fate[seq] != "live"}
    for seq in state.volatile:
        if state.fate[seq] == "live":
            state.fate[seq] = "crash"
    state.forget_volatile()
    _ascribe(state, seen)


def _lower_cap_floor(state: Model, seen: Seen) -> None:
    """What a cap evicted because volatile records took room, a replay without them keeps."""
    for seq in state.of("cap"):
        if seq > seen.cap_hi and seq not in state.volatile:
            state.fate[seq] = "live"
    state.cap_hi = min(state.cap_hi, seen.cap_hi)


def _ascribe(state: Model, seen: Seen) -> None:
    """Take over the causes of death that the engine gives for blurred seqs, where it may."""
    hidden = []
    for seq in sorted(state.blurred):
        shown = seen.fate.get(seq)
        if shown == "del":
            state.fate[seq] = "del"
        elif shown == "crash":
            state.fate[seq] = "crash"
        else:
            hidden.append(seq)
    free = set(hidden)
    known = Counter(fate for seq, fate in state.fate.items() if seq not in free)
    causes: tuple[Fate, ...] = ("crash", "cap", "ttl", "del", "skip")
    supply = [fate for fate in causes for _ in range(max(0, seen.ledger[fate] - known[fate]))]
    for seq, fate in zip(hidden, supply, strict=False):
        state.fate[seq] = fate


def _restart_ephemeral(state: Model, seen: Seen, how: How, handed_out: int) -> Iterable[str]:
    if seen.head < handed_out:
        yield f"head {seen.head} is below {handed_out}, which was handed out"
    if how == CLEAN and seen.head != state.head:
        yield f"head {seen.head} after a clean stop at {state.head}"
    blurred = state.blurred
    state.wipe(max(seen.head, state.head))
    if how == CLEAN:  # every cause of death is known, as far as it was before
        state.blurred = blurred
    _ascribe(state, seen)
    state.blurred = frozenset(state.fate)
    state.ttl_hi = seen.ttl_hi
    state.ts = min(state.ts, seen.ts)
    state.delete_version = seen.delete_version
    state.cursors = {n: c for n, c in state.cursors.items() if n in seen.cursors}
