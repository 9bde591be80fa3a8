"""Creating or replacing a router."""

from topics.wire.decoding import BodyDecoder
from topics.wire.numbers import Body
from topics.wire.predicates import Match, Predicate, parse_match
from topics.wire.requests.reading import check_match
from topics.wire.words import Guarantee


class RouterBody(Body):
    """A router as sent: a full replacement."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"

    @property
    def predicate(self) -> Predicate | None:
        return None if self.filter is None else parse_match(self.filter)


_router = BodyDecoder(RouterBody)


def decode_router(body: bytes) -> RouterBody:
    sent = _router.decode(body)
    check_match(sent.filter)
    return sent
