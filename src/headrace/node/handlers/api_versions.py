"""ApiVersions, key 18, versions 0–4: the APIs that the listener of the request serves, and the finalized
features of the cluster.

The response header is always version 0, and a request in a version we do not know is answered too, in version
0 with an error (KIP-511): a client asks this before it knows anything about us.
"""

import re

from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import SERVED, Request, Routes
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# The connection keeps name and version, also of clients that have not logged in. Real ones have some twenty.
SOFTWARE_CHARACTERS_MAX = 200
API_VERSIONS = 18
TELLS_SOFTWARE_SINCE = 3
FEATURES_FROM_ZERO_SINCE = 4


class ApiVersions:
    def __init__(
        self,
        routes: Routes,
        metadata: MetadataLog,
    ) -> None:
        self._routes = routes
        self._metadata = metadata

    def handle(self, request: Request) -> ApiVersionsResponse:
        body: ApiVersionsRequest = request.body
        if request.version >= TELLS_SOFTWARE_SINCE:
            software = (body.client_software_name, body.client_software_version)
            if not all(_is_software(part) for part in software):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            request.connection.client_software = software
        metadata = self._metadata
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=lowest, max_version=highest)
                for key, lowest, highest in self._routes.advertised(request.connection.listener)
            ],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items())
                # clients below v4 take a minimum of 0 for an error (KAFKA-17492)
                if lowest > 0 or request.version >= FEATURES_FROM_ZERO_SINCE
            ],
            finalized_features_epoch=metadata.committed_offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(metadata.image.features.items())
            ],
        )


def _is_software(text: str) -> bool:
    return len(text) <= SOFTWARE_CHARACTERS_MAX and SOFTWARE.fullmatch(text) is not None


def unsupported() -> ApiVersionsResponse:
    """For a version we do not know: the range in which the client may ask again."""
    lowest, highest = SERVED[API_VERSIONS]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=lowest, max_version=highest)],
    )
