"""Archives in and out of a workspace: tar, tar.gz and zip, streamed, each member checked."""
