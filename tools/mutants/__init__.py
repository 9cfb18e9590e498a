"""Mutation testing of the broker: small seeded mistakes in its code, and whether the tests notice them."""
