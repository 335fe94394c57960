"""Looking into connections: TLS ended here, each request judged, and carried on to the server."""
