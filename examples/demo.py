"""The main job from end to end, in one process: `make demo`.

Writes a few orders to a durable log, reads them back, erases one customer, closes the log and opens
it again to show that it is all still so. Ends by itself and leaves nothing behind.
"""

import tempfile
from pathlib import Path

import topics

ORDERS = [{"data": {"order": n, "eur": 10 * n}, "tag": f"customer-{n % 3}"} for n in range(1, 10)]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as folder:
        directory = Path(folder, "data")
        write(directory)
        erase(directory)
        look_again(directory)
    print("Done. The demo's directory has been removed.")


def write(directory: Path) -> None:
    with topics.open(directory) as log:
        log.create("orders", durability="fsync")
        ack = log.append("orders", ORDERS, idempotency_key="first-batch")
        print(f"Wrote orders {ack.first_seq} to {ack.last_seq}; they are on disk, synced.")
        again = log.append("orders", ORDERS, idempotency_key="first-batch")
        print(
            f"Sent them again with the same key: stored twice? {'no' if again.deduped else 'yes'}."
        )


def erase(directory: Path) -> None:
    with topics.open(directory) as log:
        log.delete("orders", match="customer-1")
        print("Closed the log, opened it again and deleted everything tagged customer-1.")


def look_again(directory: Path) -> None:
    with topics.open(directory) as log:
        page = log.read("orders", after=0, limit=100)
        print(f"Opened it once more. {len(page.records)} orders are left:")
        for record in page.records:
            print(f"  seq {record.seq}  {record.tag}  {record.data}")


if __name__ == "__main__":
    main()
