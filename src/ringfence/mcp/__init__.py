"""`ringfence mcp`: the sandbox as tools of the Model Context Protocol. Translates; judges and runs nothing itself."""
