"""Every call of an embedded log, as something to interrupt. Each tells the books what it does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from topics.embedded import open_log
from topics.torture.interrupted import CLASSES, CONSUMER, FADING, Book, World, adding, append

Call = Callable[[World], object]


def appends(world: World) -> None:
    topic = world.random.choice((*CLASSES, *FADING, "source", "jobs", "tries"))
    for _ in range(world.random.randint(1, 6)):
        numbers = world.numbers()
        world.do(adding(topic, numbers), lambda n=numbers: append(world, topic, n))  # type: ignore[misc]


def append_many(world: World) -> None:
    topic = world.random.choice((*CLASSES, "capped", "source", "jobs"))
    numbers = world.numbers(world.random.randint(2, 40))
    world.do(adding(topic, numbers), lambda: append(world, topic, numbers))


def append_with_key(world: World) -> None:
    topic = world.random.choice(CLASSES)
    numbers = world.numbers(world.random.randint(1, 3))
    key = f"key {numbers[0]}"
    world.do(
        adding(topic, numbers),
        lambda: append(world, topic, numbers, idempotency_key=key),
        again=True,
    )


def append_at_head(world: World) -> None:
    topic, numbers = world.random.choice(CLASSES), world.numbers()
    head = world.at.state(topic).head_seq
    world.do(adding(topic, numbers), lambda: append(world, topic, numbers, expect_head=head))


def append_to_new(world: World) -> None:
    numbers = world.numbers()
    config = {"durability": world.random.choice(CLASSES)}
    world.maybe(adding("made", ()), lambda: None)  # its own change, before that of the records
    world.do(adding("made", numbers), lambda: append(world, "made", numbers, config=config))


def delete_before(world: World) -> None:
    topic = world.random.choice((*CLASSES, "jobs"))
    known = [n for n in world.books[0].topics[topic] if n in world.seqs.get(topic, {})]
    if not known:
        return
    seq = world.seqs[topic][world.random.choice(known)]

    def change(book: Book) -> None:
        seqs = world.seqs[topic]
        book.topics[topic] = [n for n in book.topics[topic] if n not in seqs or seqs[n] >= seq]

    world.do(change, lambda: world.at.delete(topic, before_seq=seq))


def delete_tagged(world: World) -> None:
    topic, tag = world.random.choice(CLASSES), world.random.randrange(3)

    def change(book: Book) -> None:
        book.topics[topic] = [n for n in book.topics[topic] if n % 3 != tag]

    world.do(change, lambda: world.at.delete(topic, match=f"t{tag}"))


def create(world: World) -> None:
    world.do(adding("made", ()), lambda: world.at.create("made"))


def configure(world: World) -> None:
    durability: Any = world.random.choice(CLASSES)

    def change(book: Book) -> None:
        book.durability = durability

    world.do(change, lambda: world.at.configure("right", durability=durability))


def drop(world: World) -> None:
    def change(book: Book) -> None:
        book.topics.pop("made", None)

    world.do(change, lambda: world.at.drop("made"))


def claim(world: World) -> None:
    world.held = ()
    world.held = world.at.queue("jobs").claim(world.random.randint(1, 5))


def ack(world: World) -> None:
    jobs = world.held
    gone = {job.data["n"] for job in jobs}

    def change(book: Book) -> None:
        book.topics["jobs"] = [n for n in book.topics["jobs"] if n not in gone]

    # Leases are not durable: a log that was opened again meanwhile skips these jobs.
    world.maybe(change, lambda: world.at.queue("jobs").ack(jobs))
    world.held = ()


def nack(world: World) -> None:
    world.at.queue("jobs").nack(world.held)
    world.held = ()


def extend(world: World) -> None:
    queue = world.at.queue("jobs")
    queue.extend(world.held, lease_ms=60_000)
    queue.stats()


def try_often(world: World) -> None:
    queue = world.at.queue("tries")
    for _ in range(3):
        queue.nack(queue.claim(3))


def redrive(world: World) -> None:
    world.at.queue("tries").redrive(most=3)


def set_cursor(world: World) -> None:
    name = world.random.choice(("one", "two"))
    seq = world.random.randint(0, world.at.state("disk").head_seq)

    def change(book: Book) -> None:
        book.cursors[name] = seq

    world.do(change, lambda: world.at.set_cursor("disk", name, seq))


def drop_cursor(world: World) -> None:
    def change(book: Book) -> None:
        book.cursors.pop("one", None)

    world.do(change, lambda: world.at.drop_cursor("disk", "one"))


def route(world: World) -> None:
    world.do(
        lambda book: book.routers.add("some"),
        lambda: world.at.route("some", source="source", dest="some"),
    )


def drop_router(world: World) -> None:
    world.do(
        lambda book: book.routers.discard("some"),
        lambda: world.at.drop_router("some"),
    )


def commit(world: World) -> None:
    world.epoch += 1
    epoch = world.epoch
    left, right = world.numbers(3), world.numbers(2)
    rows = [{"topic": "left", "data": {"n": n}} for n in left]
    rows += [{"topic": "right", "data": {"n": n}} for n in right]

    def change(book: Book) -> None:
        book.topics["left"] += left
        book.topics["right"] += right

    def stage_and_commit() -> None:
        world.at.stage("app", epoch, 0, rows)
        world.at.commit("app", epoch, [(0, 0)])

    world.do(change, stage_and_commit, again=True)


def checkpoint(world: World) -> None:
    world.at.checkpoint()


def upkeep(world: World) -> None:
    world.at.sync()
    world.at.maintain()


def look(world: World) -> None:
    log, topic = world.at, world.random.choice((*CLASSES, *FADING, "all"))
    page = log.read(topic, match=world.random.choice((None, "t1", "t*")))
    log.read(topic, after=page.head_seq, wait=0.001)
    log.plan(topic, from_seq=1, to_seq=max(1, page.head_seq))
    log.holes(topic, from_seq=1, to_seq=max(1, page.head_seq))
    log.topics()
    log.queue("jobs").stats()


def follow(world: World) -> None:
    for _ in islice(world.at.follow(world.random.choice(CLASSES), wait=0.002), 50):
        pass


def watch(world: World) -> None:
    for _ in islice(world.at.watch(CLASSES, wait=0.002), 50):
        pass


def consume(world: World) -> None:
    topic = world.random.choice(CLASSES)
    consumer = world.at.consumer(topic, name=CONSUMER)
    for _ in islice(consumer.follow(wait=0.001), 3):
        consumer.commit()


def close(world: World) -> None:
    world.close()


def open_again(world: World) -> None:
    world.close()
    world.open()


def view(world: World) -> None:
    if world.directory is not None:
        cold_dir = world.settings.get("cold_dir")
        with open_log(world.directory, read_only=True, cold_dir=cold_dir) as found:
            found.read("fsync")
            found.refresh()  # type: ignore[attr-defined]
            found.topics()


CALLS: tuple[Call, ...] = (
    appends,
    append_many,
    append_with_key,
    append_at_head,
    append_to_new,
    delete_before,
    delete_tagged,
    create,
    configure,
    drop,
    claim,
    ack,
    nack,
    extend,
    try_often,
    redrive,
    set_cursor,
    drop_cursor,
    route,
    drop_router,
    commit,
    checkpoint,
    upkeep,
    look,
    follow,
    watch,
    consume,
    close,
    open_again,
    view,
)
