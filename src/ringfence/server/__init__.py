"""The service: sessions, executions, files and questions of many callers over HTTP (docs/server.md)."""
