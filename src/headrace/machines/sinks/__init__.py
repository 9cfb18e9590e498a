"""Sinks: exactly-once writes of programs that write batch by batch, in many tasks."""
