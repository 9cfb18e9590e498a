"""Connections to brokers: sockets, requests in flight, the protocol of a connection, the choice of a broker.

Only `sockets` touches the network. `connection` and `in_flight` take bytes and give bytes; `reachability`
remembers which brokers failed.
"""
