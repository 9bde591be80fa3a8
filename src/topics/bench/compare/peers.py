"""Who takes part, in the order of the tables; ours first."""

from topics.bench.compare.kafka import Kafka
from topics.bench.compare.nats import Nats
from topics.bench.compare.ours import Ours
from topics.bench.compare.peer import Peer
from topics.bench.compare.postgres import Postgres
from topics.bench.compare.redis import Redis

PEERS: dict[str, Peer] = {
    peer.name: peer for peer in (Ours(), Redis(), Nats(), Postgres(), Kafka())
}
