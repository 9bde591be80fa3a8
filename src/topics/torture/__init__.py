"""A real server on a real disk, killed again and again under load, and an oracle that counts.

The parts: `nursery` makes servers, `server` starts and kills them, `calls` talks to them. Actors
(`writers`, `jobs`, `routes`, `epochs`, `drops`, `readers`) load it, each with topics of its own,
and remember what they were told. `run` lets them live through one cycle after another and asks each
what is wrong.

The oracle knows only what was acknowledged. SIGKILL leaves the page cache alone, so every class
but `ephemeral` has to keep everything that had an answer; a call without an answer may have
happened, whole, or not at all.
"""
