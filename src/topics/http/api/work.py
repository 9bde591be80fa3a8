"""Work streams: jobs pushed to a worker as they become claimable."""

from __future__ import annotations

from topics.delivery.work_stream import Wants, WorkStream
from topics.http.api.call import Call
from topics.http.api.queues import queues_of
from topics.http.api.routing import Handler
from topics.http.api.watch import EVENT_STREAM, STREAM_HEADERS, refuse_other_types
from topics.queue.holding import check_node


def open_work(call: Call) -> None:
    """Check the accepted type, the node, the queue and the connection caps, in this order."""
    refuse_other_types(call)
    (name,) = call.names
    node = call.query.text("node") or ""
    check_node(node)
    queues, service = queues_of(call), call.service
    topic = queues.queue(name)
    wants = Wants(node, queues.clamped(call.query.u32("max")), call.query.u64("lease_ms"))
    floor, key_id = service.floor, call.principal.key_id
    service.open_stream(key_id)
    call.stop_counting()
    try:
        stream = call.reply.stream(content_type=EVENT_STREAM, headers=STREAM_HEADERS)
    except BaseException:
        service.close_stream(key_id)
        raise

    def ended() -> None:
        service.close_stream(key_id)
        floor.live.connections.pop(opened, None)

    opened = WorkStream(floor, topic, wants, stream, on_end=ended)
    floor.live.connections[opened] = None
    opened.start()


HANDLERS: dict[str, Handler] = {"streamJobs": open_work}
