"""A node's login at another node: frames out and answers in, until the other one lets it in.

    mechanism --accepted--> exchange --the other node has shown all it had to--> in

The exchange is the same as that of a client. Nodes of a cluster speak the newest versions of both requests.
"""

from headrace.base.randomness import Randomness
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import Login, Mechanism, Token
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.protocol.notation import Request
from headrace.server.peers import LOGIN_TICKET

# A session is renewed when this much of it is over, in thousandths and drawn each time, as clients do.
RENEW_AFTER_MIN, RENEW_AFTER_SPREAD = 850, 100


class PeerLogin:
    def __init__(
        self, mechanism: Mechanism, rng: Randomness, client_id: str, token: Token | None = None
    ) -> None:
        self._login = Login(mechanism, rng, token)
        self._client_id = client_id
        self._rng = rng
        self._asked = 0  # API key of the request that waits for an answer

    def begin(self) -> bytes:
        return self._frame(self._login.begin())

    def answered(self, frame: memoryview) -> bytes | None:
        """The next frame; None: we are in. AuthenticationFailed: the other node refuses us, or does not speak
        the protocol.
        """
        key = self._asked
        version = APIS[key].last
        codec = response_codec(key, version)
        request: Request | None
        try:
            _, position = decode_response_header(frame, codec.header_version)
            answer = codec.decode(frame, position)
        except ProtocolError as error:
            raise AuthenticationFailed(f"the answer to {APIS[key].name} cannot be read: {error}") from error
        if key == SaslHandshakeRequest.KEY:
            request = self._login.accepted(answer)
        else:
            request = self._login.continued(answer)
        return None if request is None else self._frame(request)

    def renew_after_s(self) -> float | None:
        """None: the session does not end."""
        lifetime_ms = self._login.session_lifetime_ms
        if lifetime_ms <= 0:
            return None
        share = (RENEW_AFTER_MIN + self._rng.randrange(RENEW_AFTER_SPREAD)) / 1000
        return lifetime_ms / 1000 * share

    def _frame(self, request: SaslHandshakeRequest | SaslAuthenticateRequest) -> bytes:
        self._asked = key = request.KEY
        version = APIS[key].last
        body = request_codec(key, version).encode_parts(request)
        return b"".join(request_frame(key, version, LOGIN_TICKET, self._client_id, body))  # type: ignore[arg-type]
