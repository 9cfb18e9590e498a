"""The handlers that every process has: which versions are served, and logins.

A handler is built, and its module imported, when the first request of its API arrives.
"""

from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Handle, RoleApis, Routes, Served
from headrace.protocol.api import BOTH, ApiKey


class CommonHandlers:
    def __init__(self, routes: Routes, metadata: MetadataLog) -> None:
        self._routes = routes
        self._metadata = metadata

    def register(self) -> None:
        self._routes.serve(self, SERVED_BY_ALL)

    def api_versions(self) -> Handle:
        from headrace.node.handlers.api_versions import ApiVersions

        return ApiVersions(self._routes, self._metadata).handle

    def sasl_handshake(self) -> Handle:
        from headrace.node.handlers.sasl_handshake import SaslHandshake

        return SaslHandshake().handle

    def sasl_authenticate(self) -> Handle:
        from headrace.node.handlers.sasl_authenticate import SaslAuthenticate

        return SaslAuthenticate().handle


SERVED_BY_ALL = RoleApis(
    (
        Served(ApiKey.API_VERSIONS, BOTH, CommonHandlers.api_versions),
        Served(ApiKey.SASL_HANDSHAKE, BOTH, CommonHandlers.sasl_handshake),
        Served(ApiKey.SASL_AUTHENTICATE, BOTH, CommonHandlers.sasl_authenticate),
    )
)
