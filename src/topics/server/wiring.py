"""Puts the parts of a server together: the routes, the application, live delivery."""

from __future__ import annotations

from topics.http.api import console as console_api
from topics.http.api import cursors as cursors_api
from topics.http.api import pages as pages_api
from topics.http.api import probes as probes_api
from topics.http.api import queues as queues_api
from topics.http.api import records as records_api
from topics.http.api import routers as routers_api
from topics.http.api import stages as stages_api
from topics.http.api import topics as topics_api
from topics.http.api import watch as watch_api
from topics.http.api import work as work_api
from topics.http.api.app import App
from topics.http.api.routing import routes_of
from topics.http.api.service import Service
from topics.http.ws import commands as ws_api


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
    routes.add_below(console_api.PLACE, console_api.FILES)
    return App(service, routes)
