"""Sink sessions: how a program that writes batch by batch, in many tasks, writes each batch exactly once."""
