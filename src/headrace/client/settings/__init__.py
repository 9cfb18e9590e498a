"""Settings of a client: from what the user wrote to typed values.

`keys` declares every key once: name, type, default, allowed values, the clients that take it, and what it
does. Checks, suggestions for misspelt names, the page docs/reference/client-configs.md and the defaults of
the typed values come from there. `configuration` reads what a user wrote; `producer`, `consumer`, `network`
(with the few of an admin client) and `security` have the values that the clients work with, in seconds
instead of milliseconds.
"""
