"""The schema registry as a state machine: subjects, versions, ids, compatibility levels and modes.

What a schema is and which change is compatible is in `schema_formats/`; the REST API over the registry is in
`server/registry_rest.py`.
"""
