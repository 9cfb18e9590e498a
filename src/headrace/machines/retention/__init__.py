"""How long retention waits for groups."""
