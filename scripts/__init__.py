"""What a person runs: the `laploop` command. Importing it loads no model code and no terminal library."""
