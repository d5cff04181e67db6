"""The official OpenAI client over a model in this process. See `clients`."""
