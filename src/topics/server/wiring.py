"""Puts the parts of a server together: the routes, the application, live delivery."""

from __future__ import annotations

from topics.http import (
    cursors_api,
    pages_api,
    probes_api,
    queues_api,
    records_api,
    routers_api,
    stages_api,
    topics_api,
    watch_api,
    work_api,
    ws_api,
)
from topics.http.app import App
from topics.http.routing import routes_of
from topics.http.service import Service


def build_app(service: Service) -> App:
    """The application of one server."""
    modules = (
        cursors_api,
        pages_api,
        probes_api,
        routers_api,
        stages_api,
        topics_api,
        watch_api,
        work_api,
        ws_api,
    )
    handlers = records_api.handlers() | queues_api.handlers()
    for module in modules:
        handlers |= module.HANDLERS
    routes = routes_of(handlers, stages_api.ADMITS, probe_auth=service.probe_auth)
    return App(service, routes)
