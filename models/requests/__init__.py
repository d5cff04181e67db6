"""What a caller may ask: fields, messages and tools, checked before any model is involved. See `request`."""
