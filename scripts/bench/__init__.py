"""`laploop bench`: llama-bench's tests, tables and files, and what makes its figures comparable."""
