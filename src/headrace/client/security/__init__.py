"""Who may read along and who is who: TLS and SASL of a client, as values; bytes in, bytes out.

`settings` reads what the user wrote into a `Security`, which all connections of a client share. `tls` wraps
a connection's bytes; `login` is one authentication, whose messages `Connection` carries; the mechanisms are
`plain`, `scram` and `oauthbearer`. Nothing here opens a socket or asks what time it is; the one exception is
`oidc`, which fetches tokens for whoever has no function of their own.
"""
