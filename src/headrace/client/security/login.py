"""One authentication, as the messages that carry it (KIP-43, KIP-152); `Connection` sends and receives them.

    begin --mechanism accepted--> exchange --the broker has shown all it had to--> over

A broker that refuses is the end of it: `AuthenticationFailed`, which trying again does not cure.
"""

from headrace.base.dice import Dice
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.mechanism import Mechanism, Token
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class Login:
    def __init__(self, mechanism: Mechanism, dice: Dice, token: Token | None) -> None:
        self._mechanism = mechanism
        self._exchange = mechanism.exchange(dice, token)
        self.session_lifetime_ms = 0  # as the broker said last; 0: no end

    def begin(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self._mechanism.name)

    def accepted(self, answer: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The broker's word on the mechanism; what to send next."""
        match answer.error_code:
            case 0:
                return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
            case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(answer.mechanisms[:20]) or "none"
                raise AuthenticationFailed(
                    f"the broker does not take the mechanism {self._mechanism.name}; it takes {offered}",
                    code=answer.error_code,
                    advice="Set sasl.mechanism to one that it takes.",
                )
            case ErrorCode.ILLEGAL_SASL_STATE:
                raise without_sasl()
            case code:
                raise AuthenticationFailed("the broker refused to begin a login", code=code)

    def continued(self, answer: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The broker's next words; what to send next, or None when we are logged in."""
        if answer.error_code:
            raise self._refused(answer)
        self.session_lifetime_ms = answer.session_lifetime_ms
        reply = self._exchange.answer(bytes(answer.auth_bytes))
        return None if reply is None else SaslAuthenticateRequest(auth_bytes=reply)

    def _refused(self, answer: SaslAuthenticateResponse) -> AuthenticationFailed:
        mechanism = self._mechanism
        who = f"user {mechanism.user}" if mechanism.user else "the token"
        reason = f": {answer.error_message}" if answer.error_message else ""
        advice = (
            "Check that the token is for this broker and still valid."
            if mechanism.needs_token
            else f"Check user and password, and that the broker knows the user for {mechanism.name}."
        )
        return AuthenticationFailed(
            f"the broker refused {who} with {mechanism.name}{reason}", code=answer.error_code, advice=advice
        )


def without_sasl() -> AuthenticationFailed:
    """The error of a listener that logs nobody in."""
    return AuthenticationFailed(
        "the broker's listener has no SASL",
        code=ErrorCode.ILLEGAL_SASL_STATE,
        advice="Set security.protocol to PLAINTEXT or SSL, or use the address of a SASL listener.",
    )
