"""JSON Schema: what sampling enforces, what is validated after, what is refused. See `schema`."""
