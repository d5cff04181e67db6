"""How scripts/run and scripts/test make `.venv`: standard library only, knows nothing of laploop itself."""
