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
from topics.http.routing import Routes
from topics.http.service import Service


def build_app(service: Service) -> App:
    """The application of one server."""
    routes = Routes()
    probes_api.register(routes, probe_auth=service.probe_auth)
    topics_api.register(routes, records_api.writing())
    records_api.register(routes)
    cursors_api.register(routes)
    pages_api.register(routes)
    stages_api.register(routes)
    queues_api.register(routes)
    work_api.register(routes)
    routers_api.register(routes)
    watch_api.register(routes)
    ws_api.register(routes)
    return App(service, routes)
