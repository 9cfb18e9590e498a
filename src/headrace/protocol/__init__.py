"""Kafka's wire protocol: messages as declarations, codecs compiled from them, framing and error codes.

`api` leads from an API key to its codecs, `messages` holds one module per API, `metadata_records` the
records of the cluster metadata log. Nothing here is imported before it is used.
"""
