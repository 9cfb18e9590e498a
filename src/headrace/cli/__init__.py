"""The `headrace` command: one module per subcommand, each imported only when it is asked for."""
