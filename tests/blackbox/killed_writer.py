"""A program that writes until it is killed: `python killed_writer.py '<task as JSON>'`.

It says on its output what it is about to do, does it, and says what came back, one JSON line
each. A line is written at one go, so whoever kills it knows all that was acknowledged and at most
one operation whose outcome only the directory can tell.
"""

import json
import os
import sys
from random import Random
from typing import Any

import topics

TOPICS: dict[str, dict[str, Any]] = {
    "a-ephemeral": {"durability": "ephemeral"},
    "a-memory": {"durability": "memory"},
    "a-disk": {"durability": "disk"},
    "a-fsync": {"durability": "fsync"},
    "capped-disk": {"durability": "disk", "cap_records": 60},
    "capped-fsync": {"durability": "fsync", "cap_records": 40},
}
TAGS = ("red", "green", "blue", "blue-dark", None)
CURSOR = "consumer"


def main() -> None:
    task = json.loads(sys.argv[1])
    rng = Random(task["seed"])
    say({"started": os.getpid()})
    with topics.open(task["directory"], **task["settings"]) as log:
        for name, config in TOPICS.items():
            log.create(name, **config)
        say({"ready": True})
        if task["again"] is not None:
            perform(log, task["again"])
        for number in range(task["operations"]):
            perform(log, choose(rng, f"{task['seed']}-{number}"))
    say({"finished": True})


def choose(rng: Random, label: str) -> dict[str, Any]:
    """The next operation; the same seed gives the same row of them."""
    topic = rng.choice(list(TOPICS))
    dice = rng.random()
    if dice < 0.03:
        return {"do": "checkpoint"}
    if dice < 0.05:
        return {"do": "maintain"}
    if dice < 0.09:
        return {"do": "delete", "topic": topic, "match": rng.choice(["red", "blue*"])}
    if dice < 0.12:
        return {"do": "delete", "topic": topic, "back": rng.randrange(5, 60)}
    if dice < 0.16:
        return {"do": "cursor", "topic": topic, "back": rng.randrange(1, 30)}
    count = rng.choice([1, 1, 1, 2, 5, 10])
    records = [[payload(rng, f"{label}-{i}"), rng.choice(TAGS)] for i in range(count)]
    return {"do": "append", "topic": topic, "records": records, "key": label}


def payload(rng: Random, label: str) -> str:
    filler = "x" * rng.choice([0, 10, 100, 1000])
    return json.dumps({"label": label, "filler": filler}, separators=(",", ":"))


def perform(log: Any, step: dict[str, Any]) -> None:  # noqa: ANN401 - a topics log
    if "back" in step:
        step["seq"] = max(0, log.state(step["topic"]).head_seq - step["back"])
    say(step)
    match step["do"]:
        case "append":
            records = [{"data": raw.encode(), "tag": tag} for raw, tag in step["records"]]
            ack = log.append(step["topic"], records, idempotency_key=step["key"])
            say({"done": True, "first": ack.first_seq, "deduped": ack.deduped})
            return
        case "delete":
            log.delete(step["topic"], match=step.get("match"), before_seq=step.get("seq"))
        case "cursor":
            log.set_cursor(step["topic"], CURSOR, step["seq"])
        case "checkpoint":
            log.checkpoint()
        case "maintain":
            log.maintain()
    say({"done": True})


def say(line: dict[str, Any]) -> None:
    text = memoryview(json.dumps(line).encode() + b"\n")
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    main()
