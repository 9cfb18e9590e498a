"""Blocking clients: a session behind a lock, and a thread of its own that carries its requests."""
