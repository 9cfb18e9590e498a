"""A file per API: check, authorize, translate, ask, translate back. The listing says what we support."""
