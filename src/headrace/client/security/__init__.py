"""TLS and SASL of a client's connections: bytes in, bytes out.

`tls` wraps the bytes of a connection, with the context that the settings describe. `sasl` is one login,
whose messages `Connection` carries, with the mechanisms PLAIN and SCRAM; OAUTHBEARER is in `oauthbearer`.
Nothing here opens a socket or reads the clock, except `oidc`, which fetches tokens by HTTP.
"""
