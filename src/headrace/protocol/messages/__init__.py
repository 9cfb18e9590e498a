"""One module per API pair, imported when a codec of it is first asked for."""
