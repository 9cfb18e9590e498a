"""Clients for asyncio: a session on a running event loop, without threads or locks."""
