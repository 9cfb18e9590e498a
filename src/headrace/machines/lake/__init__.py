"""Decisions about lake tables: the ledger, the ranges to copy, the proofs in files, their comparison."""
