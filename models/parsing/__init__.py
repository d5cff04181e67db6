"""Raw output into messages: one incremental machine in stages, for every dialect. See `parser`."""
