"""Handlers: one file per API that the node serves. Each checks, authorizes, translates, asks, translates
back.
"""
