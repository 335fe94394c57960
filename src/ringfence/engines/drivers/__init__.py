"""Programs that run inside a sandbox and talk to the engine outside; read as text, never imported."""
