"""Settings of a broker with an authorizer."""

from __future__ import annotations

# Whoever comes without a login is a super user, so that the commands need none.
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
